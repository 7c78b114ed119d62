"""Every legal state change of tasks and attempts: what it sets, records and notifies.

`writers` carries them out, and nothing else writes a state. A trigger in the database is made from
the same table, so that no admin page can break it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from django.db.models import F

from apps.core.notifications import NOTIFY_ALLOCATION, NOTIFY_EXECUTION
from apps.tasks.lifecycle.states import ENDED_STATES, AttemptState, TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A change from any of the states `sources` to the state `target`.

    `sets` are the columns that change with it, `stamps` those that get its moment.
    """

    sources: tuple[str, ...]
    target: str
    sets: Mapping[str, Any] = field(default_factory=dict)
    stamps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTransition(Transition):
    """A state change of tasks.

    `event` is the kind of the event of each task; empty where the caller records all of them at
    once. `notify` are the workers to notify.
    """

    stamps: tuple[str, ...] = ("changed_at",)
    event: str = ""
    notify: tuple[str, ...] = (NOTIFY_ALLOCATION,)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptTransition(Transition):
    """A state change of attempts; the events are those of their tasks."""


_IN_NO_QUEUE = {
    "queue_id": None,
    "task_group_id": None,
    "submitted_at": None,
    "waiting_since": None,
    "ineligible_code": "",
}
_ENDS = ("changed_at", "ended_at")

ENQUEUE: Final = TaskTransition(
    sources=(TaskState.DRAFT,),
    target=TaskState.QUEUED,
    sets={"state_detail": ""},
    event="task.queued",
)
# To another queue; the event names both.
CHANGE_QUEUE: Final = TaskTransition(
    sources=(TaskState.QUEUED,),
    target=TaskState.QUEUED,
    sets={"state_detail": ""},
    event="task.moved",
)
RESUME: Final = TaskTransition(
    sources=(TaskState.PAUSED, TaskState.REJECTED),
    target=TaskState.QUEUED,
    sets={"state_detail": "", "ineligible_code": ""},
    event="task.queued",
)
RUN_AGAIN: Final = TaskTransition(
    sources=ENDED_STATES,
    target=TaskState.QUEUED,
    sets={
        "state_detail": "",
        "exit_code": None,
        "ended_at": None,
        "failures": 0,
        "preemptions": 0,
    },
    event="task.queued",
)
DEQUEUE: Final = TaskTransition(
    sources=(TaskState.QUEUED,),
    target=TaskState.DRAFT,
    sets={**_IN_NO_QUEUE, "state_detail": ""},
    event="task.draft",
)
# Of a whole queue, which may hold a million tasks: the event of the queue counts them.
CLOSE_QUEUE: Final = TaskTransition(
    sources=(TaskState.QUEUED,), target=TaskState.DRAFT, sets=_IN_NO_QUEUE, notify=()
)
REJECT: Final = TaskTransition(
    sources=(TaskState.QUEUED,), target=TaskState.REJECTED, event="task.rejected"
)
ABORT_UNSTARTED: Final = TaskTransition(
    sources=(TaskState.DRAFT, TaskState.QUEUED, TaskState.PAUSED, TaskState.REJECTED),
    target=TaskState.ABORTED,
    # Nothing waits for its group, which may be removed. A forecast counts the arrival of a task
    # that was preempted before as one of the whole queue.
    sets={"task_group_id": None, "ineligible_code": ""},
    stamps=_ENDS,
    event="task.aborted",
)
# Only the pass admits (`apps.allocation.applier`).
ADMIT: Final = TaskTransition(
    sources=(TaskState.QUEUED,),
    target=TaskState.ALLOCATED,
    sets={
        "state_detail": "",
        "generation": F("generation") + 1,
        "exit_code": None,
        "ended_at": None,
    },
    event="task.allocated",
    notify=(NOTIFY_EXECUTION,),
)
START: Final = TaskTransition(
    sources=(TaskState.ALLOCATED,), target=TaskState.RUNNING, event="task.running", notify=()
)
STOP: Final = TaskTransition(
    sources=(TaskState.ALLOCATED, TaskState.RUNNING),
    target=TaskState.STOPPING,
    event="task.stopping",
    notify=(NOTIFY_EXECUTION,),
)
PREEMPT: Final = TaskTransition(
    sources=(TaskState.ALLOCATED, TaskState.RUNNING),
    target=TaskState.STOPPING,
    sets={"preemptions": F("preemptions") + 1},
    event="task.preempted",
    notify=(NOTIFY_EXECUTION,),
)
# The end of an attempt. A task that could not start goes back to its queue, and one that ends
# before its node reported it as running completes or fails from `allocated`.
_FREED = (NOTIFY_ALLOCATION, NOTIFY_EXECUTION)
REQUEUE: Final = TaskTransition(
    sources=(TaskState.ALLOCATED, TaskState.RUNNING, TaskState.STOPPING),
    target=TaskState.QUEUED,
    event="task.queued",
    notify=_FREED,
)
PAUSE: Final = TaskTransition(
    sources=(TaskState.STOPPING,), target=TaskState.PAUSED, event="task.paused", notify=_FREED
)
COMPLETE: Final = TaskTransition(
    sources=(TaskState.ALLOCATED, TaskState.RUNNING, TaskState.STOPPING),
    target=TaskState.COMPLETED,
    stamps=_ENDS,
    event="task.completed",
    notify=_FREED,
)
FAIL: Final = TaskTransition(
    sources=(TaskState.ALLOCATED, TaskState.RUNNING, TaskState.STOPPING),
    target=TaskState.FAILED,
    stamps=_ENDS,
    event="task.failed",
    notify=_FREED,
)
ABORT_STOPPED: Final = TaskTransition(
    sources=(TaskState.STOPPING,),
    target=TaskState.ABORTED,
    stamps=_ENDS,
    event="task.aborted",
    notify=_FREED,
)
# Of an array, which is in its queue until all its elements have ended; nothing of it runs.
COMPLETE_ARRAY: Final = TaskTransition(
    sources=(TaskState.QUEUED,),
    target=TaskState.COMPLETED,
    sets={"ineligible_code": ""},
    stamps=_ENDS,
    event="task.completed",
    notify=(),
)
FAIL_ARRAY: Final = TaskTransition(
    sources=(TaskState.QUEUED,),
    target=TaskState.FAILED,
    sets={"ineligible_code": ""},
    stamps=_ENDS,
    event="task.failed",
    notify=(),
)
# By the state in which a task is after its attempt.
AFTER_ATTEMPT: Final[Mapping[str, TaskTransition]] = {
    one.target: one for one in (REQUEUE, PAUSE, COMPLETE, FAIL, ABORT_STOPPED)
}

_BEFORE_STOP = (
    AttemptState.ALLOCATED,
    AttemptState.STARTING,
    AttemptState.RUNNING,
    AttemptState.SUSPECT,
)
# A launch was claimed, or the node reports a member that no launch was noted for.
BEGIN_LAUNCH: Final = AttemptTransition(
    sources=(AttemptState.ALLOCATED, AttemptState.STARTING), target=AttemptState.STARTING
)
RELEASE_LAUNCH: Final = AttemptTransition(
    sources=(AttemptState.STARTING,), target=AttemptState.ALLOCATED
)
NOTE_RUNNING: Final = AttemptTransition(
    sources=(AttemptState.STARTING,),
    target=AttemptState.RUNNING,
    sets={"detail": "", "start_failures": 0},
    stamps=("started_at",),
)
# A stop is final: the attempt ends, whatever its nodes report later.
ASK_TO_STOP: Final = AttemptTransition(
    sources=_BEFORE_STOP, target=AttemptState.STOPPING, stamps=("stop_asked_at",)
)
SUSPECT: Final = AttemptTransition(
    sources=(AttemptState.STARTING, AttemptState.RUNNING), target=AttemptState.SUSPECT
)
ANSWERS_STARTING: Final = AttemptTransition(
    sources=(AttemptState.SUSPECT,), target=AttemptState.STARTING, sets={"detail": ""}
)
ANSWERS_RUNNING: Final = AttemptTransition(
    sources=(AttemptState.SUSPECT,), target=AttemptState.RUNNING, sets={"detail": ""}
)
FINISH: Final = AttemptTransition(
    sources=(*_BEFORE_STOP, AttemptState.STOPPING),
    target=AttemptState.FINISHED,
    stamps=("ended_at",),
)
LOSE: Final = AttemptTransition(
    sources=(*_BEFORE_STOP, AttemptState.STOPPING),
    target=AttemptState.LOST,
    stamps=("ended_at",),
)


def _edges(states: Iterable[str], transitions: Iterable[Transition]) -> dict[str, frozenset[str]]:
    """For each state, the others that may follow it."""
    found: dict[str, set[str]] = {str(state): set() for state in states}
    for one in transitions:
        for source in one.sources:
            found[str(source)].add(str(one.target))
    return {state: frozenset(targets - {state}) for state, targets in found.items()}


# All of them: they stand above this line.
_ALL = [one for one in globals().values() if isinstance(one, Transition)]
TASK_EDGES: Final = _edges(TaskState.values, [t for t in _ALL if isinstance(t, TaskTransition)])
ATTEMPT_EDGES: Final = _edges(
    AttemptState.values, [t for t in _ALL if isinstance(t, AttemptTransition)]
)
