"""What a run left behind, as plain data; the checker reads nothing else."""

from dataclasses import dataclass, field, replace
from typing import Literal

Member = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class ProcessLife:
    """One process that did the work of a member, by its own words. Times on the boot clock, s.

    Args:
        last_s: its last sign of life.
        ended_s: when it said that it ends; None when it never did.
        is_alone: whether it got the lock that only one living copy can have.
        is_child: left behind by the process of the work, in a session of its own.
        devices: whole ones that it was given, by name.
    """

    task: str
    generation: int
    rank: int
    node: str
    pid: int
    started_s: float
    last_s: float
    ended_s: float | None = None
    code: int | None = None
    is_alone: bool = True
    is_child: bool = False
    devices: tuple[str, ...] = ()

    @property
    def member(self) -> Member:
        return (self.task, self.generation, self.rank)


@dataclass(frozen=True, slots=True)
class NodeDown:
    """A node that lost all its processes at this moment."""

    node: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Silence:
    """A fault that could keep a node, or all of them (`node` empty), from the control plane."""

    node: str
    from_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class KilledAttempt:
    """An attempt whose work, or whose monitor, the run itself killed at this moment."""

    task: str
    generation: int
    at_s: float


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task as the database has it at the end; `on_node_loss` is of the queue it was last in."""

    task: str
    state: str
    exit_code: int | None
    generation: int
    retries: int
    detail: str = ""
    on_node_loss: str = "wait"


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt as the database has it at the end; `held`: rows of the ledger not released."""

    task: str
    generation: int
    state: str
    exit_code: int | None
    stop_target: str
    detail: str = ""
    held: int = 0


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What the attempts of a policy held, as millionths of GPU seconds, and how many there were.

    `sums` are the same as a table of usage has them, and how many ends it has.
    """

    table: str
    policy: str
    ledger: tuple[int, int, int]
    sums: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class AcceptedTask:
    """A task that the server said it has taken, with the client's own key."""

    key: str
    task: str


@dataclass(frozen=True, slots=True)
class Response:
    """One answer over HTTP, or the lack of one (status 0)."""

    at_s: float
    path: str
    status: int
    has_retry_after: bool = False
    words: str = ""


LeftKind = Literal["process", "container", "folder"]


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something of ours that is still there although every task has ended."""

    node: str
    kind: LeftKind
    words: str


@dataclass(slots=True)
class History:
    """Everything that the checker looks at.

    `killed` are attempts whose work the run killed, `unwatched` those whose monitor it killed.
    """

    lives: list[ProcessLife] = field(default_factory=list)
    downs: list[NodeDown] = field(default_factory=list)
    killed: list[KilledAttempt] = field(default_factory=list)
    unwatched: list[KilledAttempt] = field(default_factory=list)
    silences: list[Silence] = field(default_factory=list)
    tasks: list[TaskRow] = field(default_factory=list)
    attempts: list[AttemptRow] = field(default_factory=list)
    usage: list[UsageRow] = field(default_factory=list)
    accepted: list[AcceptedTask] = field(default_factory=list)
    responses: list[Response] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)


def read_journal(node: str, text: str) -> list[ProcessLife]:
    """The lives of one node, in the order of their starts.

    Args:
        text: lines of `event ns task generation rank pid word`, as workload.c writes them.
    """
    lives: dict[tuple[str, int, int, int], ProcessLife] = {}
    done: list[ProcessLife] = []
    for line in text.splitlines():
        event, ns, task, generation, rank, pid, word = line.split()
        at = int(ns) / 1e9
        key = (task, int(generation), int(rank), int(pid))
        if event == "start":
            if key in lives:
                # After a reboot the kernel gives the same numbers again.
                done.append(lives[key])
            manner, _, devices = word.partition("=")
            lives[key] = ProcessLife(
                *(*key[:3], node, key[3], at, at),
                is_alone=manner == "alone",
                devices=tuple(filter(None, devices.split(","))),
            )
        else:
            lives[key] = _lived_on(lives.get(key), key, node, at, event, word)
    return sorted([*done, *lives.values()], key=lambda life: life.started_s)


def _lived_on(
    life: ProcessLife | None,
    key: tuple[str, int, int, int],
    node: str,
    at: float,
    event: str,
    word: str,
) -> ProcessLife:
    if life is None:
        life = ProcessLife(*key[:3], node, key[3], at, at, is_child=True)
    if event == "end":
        return replace(life, last_s=at, ended_s=at, code=int(word))
    return replace(life, last_s=at)
