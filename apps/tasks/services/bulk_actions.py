"""Bulk actions: one action on many tasks, each judged and recorded as if it were alone."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Literal
from uuid import UUID

import structlog
from django.db import DatabaseError

from apps.accounts.models import User
from apps.core.errors import BadInput, NotFound, RpmError, Unavailable
from apps.tasks.models import Task
from apps.tasks.selectors.visibility import tasks_visible_to, without_hidden_queues
from apps.tasks.services.enqueue.submission import task_run_again
from apps.tasks.services.holds import task_hold, task_release
from apps.tasks.services.queue_order import task_change_queue, task_set_priority
from apps.tasks.services.stop import task_abort, task_dequeue, unstarted_tasks_abort

log = structlog.get_logger(__name__)

# Tasks of one request.
MOST_TASKS = 1000
# Web servers and proxies give up on a request later.
RUN_S = 20.0

BulkVerb = Literal["abort", "change-queue", "dequeue", "hold", "priority", "release", "run-again"]


@dataclass(frozen=True, slots=True)
class BulkAction:
    """What is done with each task.

    `queue` is that of `change-queue`, and may be another one of `run-again`; `priority` is the new
    one of `priority`.

    Raises:
        BadInput: the verb needs a field that is missing, or does not take one that is given.
    """

    verb: BulkVerb
    queue: str | int | None = None
    priority: int | None = None

    def __post_init__(self) -> None:
        takes_queue = self.verb in {"change-queue", "run-again"}
        if self.verb == "change-queue" and self.queue is None:
            raise _bad("queue", "is missing: give its name or id")
        if self.queue is not None and not takes_queue:
            raise _bad("queue", f"is not for {self.verb}: leave it out")
        if self.verb == "priority" and self.priority is None:
            raise _bad("priority", "is missing: give the new one")
        if self.priority is not None and self.verb != "priority":
            raise _bad("priority", f"is not for {self.verb}: leave it out")

    def act(self, actor: User, task: Task) -> Task:
        """Do it with one task, as its own service does."""
        if self.verb == "change-queue":
            return task_change_queue(actor=actor, task=task, queue=self.queue or "")
        if self.verb == "run-again":
            return task_run_again(actor=actor, task=task, queue=self.queue)
        if self.verb == "priority":
            return task_set_priority(actor=actor, task=task, priority=self.priority or 0)
        return _PLAIN[self.verb](actor=actor, task=task)


_PLAIN: dict[str, Callable[..., Task]] = {
    "abort": task_abort,
    "dequeue": task_dequeue,
    "hold": task_hold,
    "release": task_release,
}


@dataclass(frozen=True, slots=True)
class BulkResult:
    """What became of one task; `task` is None where the actor does not see it."""

    id: UUID
    task: Task | None = None
    error: RpmError | None = None


def tasks_act(
    *,
    actor: User,
    ids: Sequence[UUID],
    action: BulkAction,
    check: Callable[[Task], None] | None = None,
    run_s: float = RUN_S,
) -> list[BulkResult]:
    """Do the same with many tasks, one after the other, each in a transaction of its own.

    Tasks that do not run are aborted all at once.

    Args:
        ids: at most `MOST_TASKS`; one that is named twice counts once.
        check: what else must let the actor act on each task; raises an `RpmError`.
        run_s: tasks that are not reached within this time are not tried.

    Returns:
        The result of each task, in the order of `ids`.

    Raises:
        BadInput: there are more ids.
    """
    wanted = list(dict.fromkeys(ids))
    if len(wanted) > MOST_TASKS:
        raise _bad("tasks", f"has {len(wanted)} entries: at most {MOST_TASKS} in one request")
    tasks = _visible(actor, wanted)
    until = monotonic() + run_s
    results = []
    aborted = _abort_unstarted(actor, tasks, check) if action.verb == "abort" else frozenset()
    # Read again, as they are now.
    tasks |= _visible(actor, aborted) if aborted else {}
    for pk in wanted:
        task = tasks.get(pk)
        if pk in aborted:
            results.append(BulkResult(pk, task))
        elif task is None:
            results.append(_not_found(pk))
        elif monotonic() >= until:
            error: RpmError = Unavailable(
                "Not tried: the request took too long. Send this task again."
            )
            results.append(BulkResult(pk, task, error))
        else:
            results.append(_act(actor, task, action, check))
    return results


def _act(
    actor: User, task: Task, action: BulkAction, check: Callable[[Task], None] | None
) -> BulkResult:
    try:
        if check is not None:
            check(task)
        return BulkResult(task.pk, action.act(actor, task))
    except Task.DoesNotExist:
        # Such as one that had ended and was removed meanwhile.
        return _not_found(task.pk)
    except RpmError as error:
        return BulkResult(task.pk, task, error)
    except DatabaseError as error:
        # Such as a deadlock: its own transaction is undone, and what was done before stays done.
        log.warning("bulk_action.failed", task=str(task.pk), detail=str(error).strip())
        return BulkResult(task.pk, task, Unavailable("The database failed: send this task again."))


def _abort_unstarted(
    actor: User, tasks: Mapping[UUID, Task], check: Callable[[Task], None] | None
) -> Collection[UUID]:
    """The ids of those that ended; the others are judged one by one."""
    ids = [pk for pk, task in tasks.items() if _passes(check, task)]
    try:
        ended = unstarted_tasks_abort(actor=actor, ids=ids)
    except DatabaseError as error:
        log.warning("bulk_action.failed", tasks=len(ids), detail=str(error).strip())
        return frozenset()
    return ended


def _passes(check: Callable[[Task], None] | None, task: Task) -> bool:
    if check is not None:
        try:
            check(task)
        except RpmError:
            return False
    return True


def _not_found(pk: UUID) -> BulkResult:
    return BulkResult(pk, error=NotFound(f"There is no task {pk}, or you may not see it."))


def _visible(actor: User, ids: Iterable[UUID]) -> dict[UUID, Task]:
    rows = tasks_visible_to(actor).select_related("owner", "queue__policy")
    return {task.pk: task for task in without_hidden_queues(rows.filter(pk__in=list(ids)))}


def _bad(field: str, problem: str) -> BadInput:
    return BadInput(f"{field} {problem}.", fields={field: problem})
