"""What happens to work: begun by a test, and over when everything is as it should be."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.execution.crashes.stage import Stage

ENDED = frozenset({"completed", "failed", "aborted"})


@dataclass(slots=True)
class Verb:
    """One of the four, in one lane.

    Args:
        task: what it happens to; there before, but for a launch.
        is_unwatched: a step of the helper kills the process that waits for the work or starts it,
            so that its result may be unknown.
    """

    stage: Stage
    lane: str
    task: str = ""
    is_unwatched: bool = False
    manner: str = "plain"

    @property
    def is_prepared(self) -> bool:
        return not self.task or self.stage.state(self.task) == "running"

    @property
    def is_settled(self) -> bool:
        """Whether everything is as it should be, and nothing is left of what has ended."""
        raise NotImplementedError

    @property
    def tasks(self) -> list[str]:
        """All that it has made."""
        return [self.task] if self.task else []

    def is_never_started(self, task: str) -> bool:
        """Whether it failed because its starting process was killed, and nothing began."""
        is_failed = self.is_unwatched and self.stage.state(task) == "failed"
        return is_failed and self.stage.starts(task) == 0


@dataclass(slots=True)
class Launch(Verb):
    @property
    def is_settled(self) -> bool:
        if self.is_never_started(self.task):
            return self.stage.is_dropped(self.task)
        return self.stage.state(self.task) == "running" and self.stage.starts(self.task) == 1


@dataclass(slots=True)
class Stop(Verb):
    @property
    def is_settled(self) -> bool:
        return self.stage.state(self.task) == "aborted" and self.stage.is_dropped(self.task)


@dataclass(slots=True)
class Preempt(Verb):
    """A slot for one: what runs there stops, waits again, and what is worth more starts."""

    taker: str = ""

    @property
    def is_settled(self) -> bool:
        states = self.stage.states([self.task, self.taker])
        if self.is_never_started(self.taker):
            return states[0] == "running"
        return (
            states == ["queued", "running"]
            and self.stage.starts(self.taker) == 1
            and self.stage.is_dropped(self.task)
        )

    @property
    def tasks(self) -> list[str]:
        return [task for task in (self.task, self.taker) if task]


@dataclass(slots=True)
class PreemptOfMany(Verb):
    """The same in a pool that is full of work: which of it goes is the engine's choice."""

    taker: str = ""
    before: dict[str, int] = field(default_factory=dict)

    @property
    def is_prepared(self) -> bool:
        self.before = self._counts()
        return True

    @property
    def is_settled(self) -> bool:
        now = self._counts()
        moved = {"running": self.before["running"] - 1, "queued": self.before["queued"] + 1}
        ran = self.stage.state(self.taker) == "running" and self.stage.starts(self.taker) == 1
        return ran and now == moved and not self.stage.kept(self.lane)

    def _counts(self) -> dict[str, int]:
        return self.stage.counts(f"poor-{self.lane}")


@dataclass(slots=True)
class Finish(Verb):
    manner: str = "waiter"

    @property
    def is_settled(self) -> bool:
        # A result that nobody could take ends the task as failed, and says so.
        good = {"completed", "failed"} if self.is_unwatched else {"completed"}
        return self.stage.state(self.task) in good and self.stage.is_dropped(self.task)


def prepare(stage: Stage, cases: Iterable[Verb]) -> None:
    """Submit what has to be there before."""
    wanted = [case for case in cases if isinstance(case, Stop | Preempt | Finish)]
    tasks = stage.submit(*((f"poor-{case.lane}", case.manner) for case in wanted))
    for case, task in zip(wanted, tasks, strict=True):
        case.task = task


def begin(stage: Stage, cases: Iterable[Verb], *, crash_at: str = "") -> None:
    """What a person does, or the work itself.

    Args:
        crash_at: a step at which the process ends that carries out the wish.
    """
    cases = list(cases)
    takers = [case for case in cases if isinstance(case, Preempt | PreemptOfMany)]
    launches = [case for case in cases if isinstance(case, Launch)]
    wanted = [f"rich-{case.lane}" for case in takers] + [f"poor-{case.lane}" for case in launches]
    tasks = stage.submit(*((queue, "plain") for queue in wanted))
    for taker, task in zip(takers, tasks, strict=False):
        taker.taker = task
    for launch, task in zip(launches, tasks[len(takers) :], strict=True):
        launch.task = task
    stage.abort(*(case.task for case in cases if isinstance(case, Stop)), crash_at=crash_at)
    for case in cases:
        if isinstance(case, Finish):
            stage.let_end(case.task)


def clear(stage: Stage, cases: Iterable[Verb]) -> None:
    """End what still runs of them."""
    stage.abort(*(task for case in cases for task in case.tasks))


def is_cleared(cases: Iterable[Verb]) -> bool:
    """Whether nothing of them lives any more."""
    return all(case.stage.state(task) in ENDED for case in cases for task in case.tasks)
