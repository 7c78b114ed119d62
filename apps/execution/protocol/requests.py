"""What the control plane asks of a node. The node checks every field again (node/checks.py)."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, json

PROTOCOL: Final = 1
REQUEST_BYTES: Final = 8 * 1024 * 1024

TaskId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9-]{0,62}[A-Za-z0-9])?$")]
Generation = Annotated[int, Meta(ge=1)]
Rank = Annotated[int, Meta(ge=0, le=99_999)]
Count = Annotated[int, Meta(ge=0)]
RuntimeName = Literal["podman", "docker", "process"]
Network = Literal["default", "host", "none"]


class Member(Struct, frozen=True, order=True):
    """One member (rank, 0 without a gang) of one admission (generation) of a task."""

    task_id: TaskId
    generation: Generation
    rank: Rank = 0


class GivenDevice(Struct, frozen=True):
    """A device the task gets. `cdi` is what `probe` answered for it; empty when simulated."""

    uuid: str
    cdi: str = ""


class GivenVolume(Struct, frozen=True):
    """A folder of the node and where the container sees it."""

    source: str
    target: str
    read_only: bool = False


class SimulatedDevice(Struct, frozen=True):
    """A device that exists in the books only; `cdi` lets a container see a stand-in for it."""

    uuid: str
    model: str
    memory_mb: int
    cdi: str = ""


class LogPosition(Struct, frozen=True):
    """From which byte on a log is wanted; counted over everything the task has ever written."""

    task_id: TaskId
    generation: Generation
    rank: Rank = 0
    offset: Count = 0


class Request(Struct, frozen=True, kw_only=True, tag_field="verb"):
    """What stands in every request."""

    installation: str
    protocol: int = PROTOCOL


class Probe(Request, frozen=True, kw_only=True, tag="probe"):
    """What are you and what do you have?"""

    simulated_devices: tuple[SimulatedDevice, ...] = ()


class Pull(Request, frozen=True, kw_only=True, tag="pull"):
    """Fetch this image unless it is there, and tell how far it is after at most `wait_s`."""

    runtime: RuntimeName
    image: str = ""
    wait_s: float = 0


class Launch(Request, frozen=True, kw_only=True, tag="launch"):
    """Start this member, exactly once.

    `not_after_s` is on the node's own boot clock (`Clocks.uptime_s`) and `boot_id` says of which
    boot. Amounts of 0 set no limit. Memory is in 2^20 bytes. A container finds each of `secrets` as
    a file (variable `NAME_FILE`); a plain process, which has no private folder, as variable `NAME`.
    """

    task_id: TaskId
    generation: Generation
    rank: Rank = 0
    boot_id: str
    not_after_s: float
    runtime: RuntimeName
    image: str = ""
    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    secrets: dict[str, str] = {}
    workdir: str = ""
    devices: tuple[GivenDevice, ...] = ()
    volumes: tuple[GivenVolume, ...] = ()
    cpu_milli: Count = 0
    memory_mb: Count = 0
    shm_mb: Count = 0
    pids: Annotated[int, Meta(ge=1)] = 4096
    uid: int | None = None
    gid: int | None = None
    allow_root: bool = False
    allow_process: bool = False
    network: Network = "default"
    read_only: bool = False
    start_wait_s: float = 20


class Sync(Request, frozen=True, kw_only=True, tag="sync"):
    """What is there of ours? Answered at once if it is not what `seen` names, else on news.

    `acknowledged` are members whose results are committed in the database.
    """

    seen: str = ""
    wait_s: float = 0
    logs: tuple[LogPosition, ...] = ()
    acknowledged: tuple[Member, ...] = ()
    full: bool = False


class Stop(Request, frozen=True, kw_only=True, tag="stop"):
    """End this member: SIGTERM, `grace_s`, SIGKILL. A member that is not there may not come."""

    task_id: TaskId
    generation: Generation
    rank: Rank = 0
    grace_s: float = 10


class OverTask(Struct, frozen=True):
    """A task that will never again be launched with this generation or an older one."""

    task_id: TaskId
    generation: Generation


class Forget(Request, frozen=True, kw_only=True, tag="forget"):
    """Drop even the fences of these tasks; at the earliest when no launch can be under way."""

    tasks: tuple[OverTask, ...]


def encode(request: Request) -> bytes:
    """The request as the helper reads it.

    Raises:
        ValueError: longer than the node would read, or not encodable (half a surrogate pair).
    """
    content = json.encode(request)
    if len(content) > REQUEST_BYTES:
        raise ValueError(f"the request has {len(content)} bytes, nodes read {REQUEST_BYTES}")
    return content
