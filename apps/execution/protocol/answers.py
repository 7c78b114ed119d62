"""What nodes answer, decoded strictly: a wrong type or a missing field is an error, not a guess."""

from typing import Annotated, Final, Literal, TypeVar

from msgspec import Meta, MsgspecError, Raw, Struct, json

from apps.execution.protocol.requests import Member

ANSWER_BYTES: Final = 96 * 1024 * 1024

T = TypeVar("T")

ShortText = Annotated[str, Meta(max_length=8192)]
RefusalCode = Literal[
    "disk_full",
    "ended",
    "fenced",
    "image_missing",
    "installation",
    "invalid",
    "late",
    "not_allowed",
    "older_alive",
    "other_boot",
    "protocol",
    "start_failed",
]


class AnswerMalformed(ValueError):
    """The node answered something that is not of this protocol."""


class Refusal(Struct, frozen=True):
    """Understood and not done; `detail` is for people."""

    code: RefusalCode
    detail: str


class Clocks(Struct, frozen=True):
    """The node's view of time at the end of the exchange, and the version of its helper."""

    helper: ShortText
    boot_id: ShortText
    uptime_s: float
    wall_s: float


class Device(Struct, frozen=True):
    """A device of the node. `cdi` is empty when no CDI file names it.

    `parent_uuid` is the GPU that it is a slice of (MIG), empty for a whole GPU.
    """

    index: int
    uuid: ShortText
    model: ShortText
    memory_mb: int
    used_mb: int
    cdi: ShortText
    simulated: bool
    utilisation_percent: int | None = None
    parent_uuid: ShortText = ""


class Enforcement(Struct, frozen=True):
    """What holds tasks to their share of a device; `detail` says why it is no more than that."""

    memory: Literal["mig", "mps", "accounted"]
    compute: Literal["mig", "mps", "accounted"]
    detail: str = ""


class Interface(Struct, frozen=True):
    """A network interface; bytes since boot."""

    name: ShortText
    received_bytes: int
    sent_bytes: int


class Probed(Struct, frozen=True):
    """The node's inventory. `nvidia` is "ok" or says in words what is wrong with its GPUs.

    `enforcement` is missing without real devices.
    """

    hostname: ShortText
    kernel: ShortText
    python: ShortText
    account: int
    nvidia: str
    driver: ShortText
    devices: tuple[Device, ...]
    cdi_names: tuple[str, ...]
    cpu_milli: int
    memory_mb: int
    memory_free_mb: int
    disk_mb: int
    disk_free_mb: int
    network: tuple[Interface, ...]
    runtimes: dict[str, str]
    crashes: str
    enforcement: Enforcement | None = None
    # The NVIDIA toolkit's version line, and sshd's limits by their names; empty where not known.
    toolkit: ShortText = ""
    sshd: dict[str, str] = {}


class Pulled(Struct, frozen=True):
    """Whether the image is there, and the last words of the runtime.

    Of one that is there: its number on the node (the digest of its configuration), and its digest
    in registries, empty where it has none.
    """

    state: Literal["present", "pulling", "failed"]
    progress: str
    image_id: Annotated[str, Meta(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    digest: Annotated[str, Meta(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""


class LaunchedState(Struct, frozen=True):
    """`created` when the runtime was still at it as `start_wait_s` ended."""

    state: Literal["created", "running", "exited"]


class ReportedMember(Struct, frozen=True):
    """One member as the node sees it.

    Times are missing until the event; codes above 128 are signals. An exited member without a
    code never started, or its code is lost; `error` says. `checkpointed_wall_s` is when it last
    said that it had saved its state. With `is_lease_over` the node ended it by itself.
    """

    task_id: str
    generation: int
    rank: int
    state: Literal["created", "running", "exited"]
    is_stop_asked: bool
    started_wall_s: float | None = None
    started_uptime_s: float | None = None
    ended_wall_s: float | None = None
    ended_uptime_s: float | None = None
    exit_code: int | None = None
    error: str = ""
    log_bytes: int = 0
    checkpointed_wall_s: float | None = None
    is_lease_over: bool = False

    @property
    def member(self) -> Member:
        """Which member this is about."""
        return Member(self.task_id, self.generation, self.rank)


class LogPart(Struct, frozen=True):
    """New bytes of a log. An `offset` beyond the one asked means that the node threw bytes away."""

    task_id: str
    generation: int
    rank: int
    offset: int
    content: bytes

    @property
    def member(self) -> Member:
        """Whose log this is."""
        return Member(self.task_id, self.generation, self.rank)


class DeviceProcess(Struct, frozen=True):
    """A process that computes on a device; `member` is None when it is not ours."""

    uuid: str
    pid: int
    memory_mb: int
    member: Member | None


class Report(Struct, frozen=True):
    """Everything of ours. `version` goes into the next request's `seen`.

    `serial` is the highest that the node had ever heard before this request.
    """

    version: str
    members: tuple[ReportedMember, ...]
    logs: tuple[LogPart, ...]
    device_processes: tuple[DeviceProcess, ...] = ()
    serial: int = 0


class StopState(Struct, frozen=True):
    """`absent`: never launched here, and now it cannot be any more."""

    state: Literal["absent", "stopping", "exited"]


class Forgotten(Struct, frozen=True):
    """The tasks of which nothing is left on the node."""

    forgotten: tuple[str, ...]


class Pruned(Struct, frozen=True):
    """Names of what was removed."""

    containers: tuple[str, ...]
    images: tuple[str, ...]


class Installed(Struct, frozen=True):
    """Where the helper lives now."""

    home: str
    helper: str


class _Envelope(Struct, frozen=True):
    protocol: int
    helper: str
    boot_id: str
    uptime_s: float
    wall_s: float
    answer: Raw = Raw()
    refusal: Refusal | None = None


def decode(content: bytes, kind: type[T]) -> tuple[Clocks, T | Refusal]:
    """The node's clocks and its answer, or its refusal.

    Raises:
        AnswerMalformed: too long, not JSON, or not of this shape.
    """
    _check_length(content)
    try:
        envelope = json.decode(content, type=_Envelope)
        clocks = Clocks(envelope.helper, envelope.boot_id, envelope.uptime_s, envelope.wall_s)
        if envelope.refusal is not None:
            return clocks, envelope.refusal
        if not bytes(envelope.answer):
            raise AnswerMalformed("neither an answer nor a refusal")
        return clocks, json.decode(envelope.answer, type=kind)
    except MsgspecError as error:
        raise AnswerMalformed(str(error)) from error


def decode_installed(content: bytes) -> Installed:
    """Where the helper was installed.

    Raises:
        AnswerMalformed: it was not; the message holds the node's own words.
    """
    _check_length(content)
    try:
        answer = json.decode(content, type=dict[str, str])
        if "error" in answer:
            raise AnswerMalformed(answer["error"])
        return Installed(answer["home"], answer["helper"])
    except (MsgspecError, KeyError) as error:
        raise AnswerMalformed(f"not the answer of an installation: {error}") from error


def _check_length(content: bytes) -> None:
    if len(content) > ANSWER_BYTES:
        raise AnswerMalformed(f"an answer of {len(content)} bytes")
