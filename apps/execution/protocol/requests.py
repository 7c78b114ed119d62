"""What the control plane asks of a node. The node checks every field again (node/specs.py)."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, json

from apps.core.containers import AbortCallback

PROTOCOL: Final = 1
# Above the longest command, environment and secrets, each character written as an escape.
REQUEST_BYTES: Final = 16 * 1024 * 1024

TaskId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9-]{0,62}[A-Za-z0-9])?$")]
Generation = Annotated[int, Meta(ge=1)]
Rank = Annotated[int, Meta(ge=0, le=99_999)]
Count = Annotated[int, Meta(ge=0)]
RuntimeName = Literal["podman", "docker", "process"]
Port = Annotated[int, Meta(ge=1024, le=65_535)]
Network = Literal["default", "host", "none"]
StreamKind = Literal["exec", "shell", "port"]
TerminalSize = Annotated[int, Meta(ge=1, le=2000)]


class MemberKey(Struct, frozen=True, order=True):
    """One member (rank, 0 without a gang) of one admission (generation) of a task."""

    task_id: TaskId
    generation: Generation
    rank: Rank = 0


class AllocatedDevice(Struct, frozen=True):
    """A device the task gets, or a share of it in thousandths.

    `cdi` is what `probe` answered for it; empty when simulated. `memory_mb` is what belongs to the
    share. With `enforced_by` the node holds the task to it, or does not start it.
    """

    uuid: str
    cdi: str = ""
    milli: Annotated[int, Meta(ge=1, le=1000)] = 1000
    memory_mb: Count = 0
    enforced_by: Literal["", "mps"] = ""


class VolumeMount(Struct, frozen=True):
    """A folder of the node and where the container sees it.

    With `checkpoints` the task saves its state there, in a folder of its own that the node makes.
    """

    source: str
    target: str
    read_only: bool = False
    checkpoints: bool = False


class SimulatedDevice(Struct, frozen=True):
    """A device that exists in the ledger only; `cdi` lets a container see a stand-in for it."""

    uuid: str
    model: str
    memory_mb: int
    cdi: str = ""


class LeaseRenewal(Struct, frozen=True):
    """Until when, on the boot clock, a member may run without hearing more. Only ever later."""

    task_id: TaskId
    generation: Generation
    rank: Rank = 0
    until_s: float = 0


class LogPosition(Struct, frozen=True):
    """From which byte on a log is wanted; counted over everything the task has ever written."""

    task_id: TaskId
    generation: Generation
    rank: Rank = 0
    offset: Count = 0


class NodeRequest(Struct, frozen=True, kw_only=True, tag_field="verb"):
    """The fields of every request."""

    installation: str
    protocol: int = PROTOCOL


class HelloRequest(NodeRequest, frozen=True, kw_only=True, tag="hello"):
    """Ask which helper is there, and whose; nothing is changed."""


class ProbeRequest(NodeRequest, frozen=True, kw_only=True, tag="probe"):
    """Ask for the node's inventory."""

    simulated_devices: tuple[SimulatedDevice, ...] = ()


class PreflightRequest(NodeRequest, frozen=True, kw_only=True, tag="preflight"):
    """Start a container of the helper's own image, or a process, as tasks get theirs."""

    runtime: RuntimeName
    allow_process: bool = False
    devices: tuple[AllocatedDevice, ...] = ()
    cpu_milli: Count = 1000
    memory_mb: Count = 64
    shm_mb: Count = 16
    pids: Annotated[int, Meta(ge=1)] = 64
    uid: int | None = None
    gid: int | None = None
    network: Network = "default"


class RegistryLogin(Struct, frozen=True):
    """User and password for the registry of an image; `revision` tells nothing about them."""

    registry: str
    username: str
    password: str
    revision: str

    def __repr__(self) -> str:
        return f"Login({self.registry!r}, revision={self.revision!r})"


class PullRequest(NodeRequest, frozen=True, kw_only=True, tag="pull"):
    """Fetch this image unless it is there, and tell how far it is after at most `wait_s`.

    With `digest` exactly that image of the name. With `always` the registry is asked whether the
    login may have it, even if it is there. `pull_id` is that of the last answer: a pull that has
    ended since is not made again.
    """

    runtime: RuntimeName
    image: str = ""
    digest: str = ""
    login: RegistryLogin | None = None
    always: bool = False
    wait_s: float = 0
    pull_id: str = ""


class ContainerSpec(Struct, frozen=True, kw_only=True):
    """What one member of a task runs on its node, and with how much.

    Fields that its owner chose have the names of `TaskSpec`. Amounts of 0 set no limit. `digest` or
    else `image_id` say exactly which image of that name, as a pull answered. Memory is in 2^20
    bytes. A task finds each of `secrets` as a file that only its user can read (variable
    `NAME_FILE`). `capabilities` and `device_paths` are what its profile allows beyond the usual.
    `ports` of a container with a network of its own are those of the node, too. With
    `resume_if_saved` it resumes (`RPM_RESUME`) only where its folder on the volume for checkpoints
    holds something.
    """

    runtime: RuntimeName
    image: str = ""
    digest: str = ""
    image_id: str = ""
    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    secrets: dict[str, str] = {}
    working_dir: str = ""
    devices: tuple[AllocatedDevice, ...] = ()
    volumes: tuple[VolumeMount, ...] = ()
    cpu_milli: Count = 0
    memory_mb: Count = 0
    shm_mb: Count = 0
    pids: Annotated[int, Meta(ge=1)] = 4096
    uid: int | None = None
    gid: int | None = None
    allow_root: bool = False
    capabilities: tuple[str, ...] = ()
    device_paths: tuple[str, ...] = ()
    allow_process: bool = False
    network: Network = "default"
    ports: tuple[Port, ...] = ()
    read_only: bool = False
    resume_if_saved: bool = False
    abort_callback: AbortCallback | None = None

    def __repr__(self) -> str:
        # Neither logs nor traces show what it holds: secrets are among it.
        return f"ContainerSpec({self.runtime!r}, {self.image!r})"


class LaunchRequest(NodeRequest, frozen=True, kw_only=True, tag="launch"):
    """Start this member, exactly once.

    `not_after_s` and `lease_until_s` are on the node's own boot clock (`Clocks.uptime_s`) and
    `boot_id` says of which boot. Without a lease nothing but a stop ends it.
    """

    task_id: TaskId
    generation: Generation
    rank: Rank = 0
    boot_id: str
    not_after_s: float
    lease_until_s: float | None = None
    start_wait_s: float = 20
    spec: ContainerSpec


class SyncRequest(NodeRequest, frozen=True, kw_only=True, tag="sync"):
    """Ask for the node's report. Answered at once if it is not what `seen` names, else on news.

    Bytes of logs alone are no news for `logs_after_s`. `acknowledged` are members whose results are
    committed in the database. `serial` only grows while the database is itself: a node that has
    heard a higher one tells of a restored backup, and shows the signature that came with it.
    `serial_refused` is one that bears no such signature.
    """

    seen: str = ""
    wait_s: float = 0
    logs_after_s: float = 0
    logs: tuple[LogPosition, ...] = ()
    acknowledged: tuple[MemberKey, ...] = ()
    leases: tuple[LeaseRenewal, ...] = ()
    serial: Count = 0
    serial_signature: str = ""
    serial_refused: Count = 0
    full: bool = False


class StopRequest(NodeRequest, frozen=True, kw_only=True, tag="stop"):
    """End this member: its callback, SIGTERM, `grace_s`, SIGKILL; it is gone within the sum.

    A second one never lengthens that; without `grace_s` it ends the callback. With `is_kill` it is
    SIGKILL at once. A member that is not there may not come.
    """

    task_id: TaskId
    generation: Generation
    rank: Rank = 0
    grace_s: float = 10
    is_kill: bool = False


class StreamRequest(NodeRequest, frozen=True, kw_only=True, tag="stream"):
    """Begin a command (`exec`), a terminal (`shell`) or connections (`port`) into a member.

    The program that gets it serves nothing else. Without a command a terminal is a shell of the
    image; `columns` and `rows` are of a terminal alone, `port` is of connections.
    """

    task_id: TaskId
    generation: Generation
    rank: Rank = 0
    kind: StreamKind
    command: tuple[str, ...] = ()
    columns: TerminalSize = 80
    rows: TerminalSize = 24
    port: Annotated[int, Meta(ge=0, le=65_535)] = 0


class EndedTask(Struct, frozen=True):
    """A task that will never again be launched with this generation or an older one."""

    task_id: TaskId
    generation: Generation


class ForgetRequest(NodeRequest, frozen=True, kw_only=True, tag="forget"):
    """Drop even the fences of these tasks; at the earliest when no launch can be under way."""

    tasks: tuple[EndedTask, ...]


def encode(request: NodeRequest) -> bytes:
    """The request as the helper reads it.

    Raises:
        ValueError: longer than the node would read, or not encodable (half a surrogate pair).
    """
    content = json.encode(request)
    if len(content) > REQUEST_BYTES:
        raise ValueError(f"the request has {len(content)} bytes, nodes read {REQUEST_BYTES}")
    return content
