"""What nodes answer, decoded strictly: a wrong type or a missing field is an error, not a guess."""

from typing import Annotated, Any, Final, Literal, TypeVar

from msgspec import Meta, MsgspecError, Raw, Struct, json, structs

from apps.execution.bundle import HOME
from apps.execution.protocol.bounds import (
    ANSWER_BYTES,
    LOG_BYTES,
    MOST_MEMBERS,
    ByteCount,
    Code,
    Count,
    DeviceUuid,
    ImageDigest,
    LongText,
    Name,
    Seconds,
    ShortText,
    Signature,
    TaskId,
    Token,
    WallSeconds,
    Whole,
    plain,
    storable,
)
from apps.execution.protocol.requests import MemberKey

T = TypeVar("T")
# Of the column that keeps it.
HOME_CHARACTERS: Final = 500

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


class MalformedAnswer(ValueError):
    """The node answered something that is not of this protocol."""

    def __init__(self, problem: str) -> None:
        super().__init__(plain(problem))


class Refusal(Struct, frozen=True):
    """Understood and not done; `detail` is for people."""

    code: RefusalCode
    detail: ShortText


class Clocks(Struct, frozen=True):
    """The node's view of time at the end of the exchange, and the version of its helper."""

    helper: Token
    boot_id: Token
    uptime_s: Seconds
    wall_s: WallSeconds


class DeviceReport(Struct, frozen=True):
    """A device of the node. `cdi` is empty when no CDI file names it.

    `parent_uuid` is the GPU that it is a slice of (MIG), empty for a whole GPU.
    """

    index: Annotated[int, Meta(ge=0, le=999_999)]
    uuid: DeviceUuid
    model: Name
    memory_mb: Whole
    used_mb: Whole
    cdi: Annotated[str, Meta(max_length=200)]
    simulated: bool
    utilisation_percent: Whole | None = None
    parent_uuid: Name = ""
    # Milliwatts now; None where it does not tell.
    power_mw: Whole | None = None


class Enforcement(Struct, frozen=True):
    """What holds tasks to their share of a device; `detail` says why it is no more than that."""

    memory: Literal["mig", "mps", "accounted"]
    compute: Literal["mig", "mps", "accounted"]
    detail: ShortText = ""


class NetworkInterface(Struct, frozen=True):
    """A network interface; bytes since boot. Not `physical`: a bridge, or the end of a tunnel."""

    name: ShortText
    received_bytes: ByteCount
    sent_bytes: ByteCount
    physical: bool = False


class NodeInventory(Struct, frozen=True):
    """The node's inventory. `nvidia` is "ok" or says in words what is wrong with its GPUs.

    `enforcement` is missing without real devices.
    """

    hostname: ShortText
    kernel: ShortText
    python: ShortText
    account: Annotated[int, Meta(ge=0, le=2**32)]
    nvidia: LongText
    driver: ShortText
    devices: Annotated[tuple[DeviceReport, ...], Meta(max_length=1024)]
    cdi_names: Annotated[tuple[ShortText, ...], Meta(max_length=4096)]
    cpu_milli: Whole
    memory_mb: Count
    memory_free_mb: Count
    disk_mb: Count
    disk_free_mb: Count
    network: Annotated[tuple[NetworkInterface, ...], Meta(max_length=65_536)]
    runtimes: Annotated[dict[Name, ShortText], Meta(max_length=16)]
    crashes: LongText
    enforcement: Enforcement | None = None
    # Of all CPUs together since boot; None where the helper is older.
    cpu_ms: Count | None = None
    cpu_busy_ms: Count | None = None
    # Of its system, hashed; empty where it has none.
    machine_id: ShortText = ""
    # The NVIDIA toolkit's version line, and sshd's limits by their names; empty where not known.
    toolkit: ShortText = ""
    sshd: Annotated[dict[Name, ShortText], Meta(max_length=64)] = {}

    def __post_init__(self) -> None:
        if len({device.uuid for device in self.devices}) < len(self.devices):
            raise ValueError("a device is there twice")


class PullAnswer(Struct, frozen=True):
    """Whether the image is there, and the last words of the runtime.

    Of one that is there: its number on the node (the digest of its configuration), and its digest
    in registries, empty where it has none. `pull_id`: of a pull under way, for the next request.
    """

    state: Literal["present", "pulling", "failed"]
    progress: LongText
    image_id: ImageDigest = ""
    digest: ImageDigest = ""
    pull_id: Token = ""


class PreflightAnswer(Struct, frozen=True):
    """Whether the node starts containers; `detail` holds the runtime's words where it does not."""

    state: Literal["passed", "failed"]
    detail: ShortText = ""


class LaunchAnswer(Struct, frozen=True):
    """`created` when the runtime was still at it as `start_wait_s` ended."""

    state: Literal["created", "running", "exited"]


class ReportedMember(Struct, frozen=True):
    """One member as the node sees it.

    Times are missing until the event; codes above 128 are signals. An exited member without a
    code never started, or its code is lost; `error` says. It last saved its state at
    `checkpointed_wall_s`. With `is_lease_over` the node ended it by itself.
    """

    task_id: TaskId
    generation: Whole
    rank: Whole
    state: Literal["created", "running", "exited"]
    is_stop_asked: bool
    started_wall_s: float | None = None
    started_uptime_s: float | None = None
    ended_wall_s: float | None = None
    ended_uptime_s: float | None = None
    exit_code: Code | None = None
    error: ShortText = ""
    log_bytes: Count = 0
    checkpointed_wall_s: float | None = None
    is_lease_over: bool = False

    @property
    def member(self) -> MemberKey:
        """Which member this is about."""
        return MemberKey(self.task_id, self.generation, self.rank)


class LogChunk(Struct, frozen=True):
    """New bytes of a log. An `offset` beyond the one asked means that the node threw bytes away."""

    task_id: TaskId
    generation: Whole
    rank: Whole
    offset: Count
    content: Annotated[bytes, Meta(max_length=LOG_BYTES)]

    @property
    def member(self) -> MemberKey:
        """Whose log this is."""
        return MemberKey(self.task_id, self.generation, self.rank)


class DeviceProcess(Struct, frozen=True):
    """A process that computes on a device; `member` is None when it belongs to no member."""

    uuid: Name
    pid: Whole
    memory_mb: Count
    member: MemberKey | None


class UnreadableMember(Struct, frozen=True):
    """A member of which a report says what cannot be; the others are not touched by it."""

    member: MemberKey
    has_ended: bool
    problem: ShortText


class SyncReport(Struct, frozen=True):
    """All members of this installation. `version` goes into the next request's `seen`.

    `serial`, of any size, is the highest that the node had ever heard before this request, with
    the signature that came with it. `decode` fills `unreadable`; nodes do not send it.
    """

    version: Token
    members: Annotated[tuple[ReportedMember, ...], Meta(max_length=MOST_MEMBERS)]
    logs: Annotated[tuple[LogChunk, ...], Meta(max_length=2 * MOST_MEMBERS)]
    device_processes: Annotated[tuple[DeviceProcess, ...], Meta(max_length=10_000)] = ()
    serial: int = 0
    serial_signature: Signature = ""
    unreadable: tuple[UnreadableMember, ...] = ()

    def __post_init__(self) -> None:
        # Each entry costs a transaction.
        named = [one.member for one in self.members]
        named += [one.member for one in self.unreadable]
        if len(set(named)) < len(named):
            raise ValueError("a member is there twice")


class StopAnswer(Struct, frozen=True):
    """`absent`: never launched here, and now it cannot be any more."""

    state: Literal["absent", "stopping", "exited"]


class ForgetAnswer(Struct, frozen=True):
    """The tasks of which nothing is left on the node."""

    forgotten: Annotated[tuple[TaskId, ...], Meta(max_length=1000)]


class HelloAnswer(Struct, frozen=True):
    """What the installed helper is, and what it was installed with; `environment` as a digest."""

    channel: bool
    identity: Token
    environment: Token
    has_streams: bool = True


class InstallAnswer(Struct, frozen=True):
    """Where the helper lives now, and what tells its folder from every other.

    With `known` nothing was installed: the folder belongs to the node of that name.
    """

    home: str
    helper: str
    identity: str = ""
    known: str = ""


class _Envelope(Clocks, frozen=True):
    protocol: Whole
    answer: Raw = Raw()
    refusal: Refusal | None = None


class _Named(Struct):
    """What has to be right of a member for the rest of a report to be used without it."""

    task_id: TaskId
    generation: Whole
    rank: Whole
    state: Literal["created", "running", "exited", "unknown"]
    error: Any = ""


# Answers that say little are short, whatever wrote them.
_SHORT_BYTES: Final = 256 * 1024
_SHORT: Final = (HelloAnswer, LaunchAnswer, PreflightAnswer, PullAnswer, StopAnswer)
_MOST_BYTES: Final[dict[type, int]] = {
    **dict.fromkeys((*_SHORT, ForgetAnswer, InstallAnswer), _SHORT_BYTES),
    NodeInventory: 16 * _SHORT_BYTES,
}
# Of JSON that is not of this protocol: too deep for the decoder, not UTF-8, or with a value that
# one of the classes above refuses.
_ERRORS: Final = (MsgspecError, RecursionError, ValueError)


def decode(content: bytes, kind: type[T]) -> tuple[Clocks, T | Refusal]:
    """The node's clocks and its answer, or its refusal.

    Raises:
        MalformedAnswer: too long, not JSON, or not of this shape.
    """
    _check_length(content, kind)
    try:
        envelope = json.decode(storable(content), type=_Envelope)
        clocks = Clocks(envelope.helper, envelope.boot_id, envelope.uptime_s, envelope.wall_s)
        if envelope.refusal is not None:
            return clocks, envelope.refusal
        if not bytes(envelope.answer):
            raise MalformedAnswer("neither an answer nor a refusal")
        return clocks, _answer(envelope.answer, kind)
    except _ERRORS as error:
        raise MalformedAnswer(str(error)) from error


def _answer(content: Raw, kind: type[T]) -> T:
    try:
        return json.decode(content, type=kind)
    except MsgspecError:
        if kind is not SyncReport:
            raise
    # Slower, and only where something is wrong: without the members that cannot be read.
    fields = json.decode(content, type=dict[str, Raw])
    members = json.decode(fields["members"], type=list[Raw]) if "members" in fields else []
    if len(members) > MOST_MEMBERS:
        raise MalformedAnswer(f"a report of {len(members)} members")
    unreadable = {at: one for at, one in enumerate(map(_judged, members)) if one is not None}
    rest: dict[str, Any] = {
        **fields,
        "members": [one for at, one in enumerate(members) if at not in unreadable],
    }
    answer = json.decode(json.encode(rest), type=kind)
    return structs.replace(answer, unreadable=tuple(unreadable.values()))  # type: ignore[type-var]  # it is a Report


def _judged(content: Raw) -> UnreadableMember | None:
    """What is wrong with one member of a report.

    Raises:
        MsgspecError: so much that the member itself is unknown.
    """
    try:
        json.decode(content, type=ReportedMember)
    except MsgspecError as error:
        named = json.decode(content, type=_Named)
        member = MemberKey(named.task_id, named.generation, named.rank)
        return UnreadableMember(member, named.state == "exited", plain(f"{error} {named.error}"))
    return None


def decode_installed(content: bytes) -> InstallAnswer:
    """Where the helper was installed.

    Raises:
        MalformedAnswer: it was not; the message holds the node's own words.
    """
    _check_length(content, InstallAnswer)
    try:
        answer = json.decode(storable(content), type=dict[str, str])
        if "error" in answer:
            raise MalformedAnswer(answer["error"])
        installed = InstallAnswer(
            home=answer["home"],
            helper=answer["helper"],
            identity=answer.get("identity", "")[:64],
            known=answer.get("known", "")[:120],
        )
    except (*_ERRORS, KeyError) as error:
        raise MalformedAnswer(f"not the answer of an installation: {error}") from error
    if len(installed.home) > HOME_CHARACTERS or not HOME.fullmatch(installed.home):
        raise MalformedAnswer("its helper is in a folder that no helper can be in")
    return installed


def _check_length(content: bytes, kind: type) -> None:
    most = min(ANSWER_BYTES, _MOST_BYTES.get(kind, ANSWER_BYTES))
    if len(content) > most:
        raise MalformedAnswer(f"an answer of {len(content)} bytes, and {most} are the most")
