"""The only writers of the state of tasks and attempts.

A transition is one conditional UPDATE: a row that is in another state by now is left alone, and
the caller acts on what it learns from the result.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Case, F, Q, QuerySet, Value, When
from django.utils import timezone

from apps.core.notifications import after_commit
from apps.events.services import NewEvent, events_record
from apps.policies.models import Queue
from apps.tasks.lifecycle.transitions import AttemptTransition, TaskTransition, Transition
from apps.tasks.models import (
    Attempt,
    IdleExemption,
    Task,
    TaskDependency,
    TaskGroupPermission,
    TaskUserPermission,
)
from apps.tasks.models.dependencies import (
    DECIDING_STATES,
    DependencyKind,
    DependencyOutcome,
    outcome_of,
)
from apps.tasks.topics import task_topics

# The most rows of one statement.
BATCH = 1000


@dataclass(frozen=True, slots=True)
class TaskSubject:
    """A task whose state changes, and what its event says about it.

    `queue_before` is the queue in which it was, if it was locked with it.
    """

    id: uuid.UUID
    owner_id: int | None = None
    queue_id: int | None = None
    queue_before: int | None = None
    policy_id: int | None = None
    pool_id: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, attempt: Attempt, **data: Any) -> "TaskSubject":
        """The task of this attempt, with further data of the event."""
        return cls(
            id=attempt.task_id,
            queue_id=attempt.queue_id,
            policy_id=attempt.policy_id,
            pool_id=attempt.pool_id,
            data={"generation": attempt.generation, "pool": attempt.pool_id, **data},
        )


def task_transition(
    transition: TaskTransition,
    subjects: Sequence[TaskSubject],
    *,
    at: datetime | None = None,
    generation: int | None = None,
    actor_id: int | None = None,
    columns: Mapping[str, Any] | None = None,
) -> bool:
    """Change the state of these tasks, write an event for each, and notify.

    Several tasks must be locked by the caller, in a state from which the transition leads.

    Args:
        at: the moment of the transition; None: now.
        generation: only a task of this generation; None where it does not matter.
        columns: further columns to set, the same for all.

    Returns:
        False where the only task is in another state or generation: then nothing is written.
    """
    rows = Task.objects.filter(pk__in=[one.id for one in subjects])
    if generation is not None:
        rows = rows.filter(generation=generation)
    if not _update(transition, rows, at, columns):
        return False
    _dependencies_write(transition, [one.id for one in subjects])
    transition_record(transition, subjects, actor_id=actor_id)
    return True


def tasks_lock_and_transition(
    transition: TaskTransition,
    ids: Iterable[uuid.UUID],
    *,
    actor_id: int | None = None,
    columns: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
) -> list[TaskSubject]:
    """Lock these tasks, and change the state of those from whose state the transition leads.

    The event of each names the state before. Batches are locked in order of id, so that two
    callers never deadlock.

    Args:
        columns: as in `task_transition`; with a `queue_id` the event is one of that queue.
        data: further data of the events.

    Returns:
        The tasks that changed.
    """
    with transaction.atomic():
        changed: list[TaskSubject] = []
        for batch in _batches(sorted(set(ids))):
            found = [
                replace(one, data={**one.data, **(data or {})})
                for one in _lock(batch, transition, queue_id=(columns or {}).get("queue_id"))
            ]
            if found:
                task_transition(transition, found, actor_id=actor_id, columns=columns)
                values = {**transition.sets, **(columns or {})}
                if "queue_id" in values:
                    _rules_end(found, values["queue_id"])
                changed += found
    return changed


def tasks_transition_without_events(
    transition: TaskTransition, rows: "QuerySet[Task]", *, columns: Mapping[str, Any] | None = None
) -> int:
    """Change the state of rows without an event for each; the caller records them as a whole.

    Raises:
        ValueError: the transition has an event.
    """
    if transition.event:
        raise ValueError(f"{transition.event} is recorded for each task: use task_transition")
    with transaction.atomic():
        changed = _update(transition, rows, None, columns)
        if changed and "queue_id" in transition.sets:
            _rules_of_drafts_end()
            TaskDependency.objects.filter(task__queue=None).delete()
    return changed


def attempt_transition(
    transition: AttemptTransition,
    *attempts: Attempt,
    at: datetime | None = None,
    **columns: Any,
) -> bool:
    """Change the state of attempts that the caller has locked; the objects get their new state.

    Args:
        at: the moment of the transition; None: now.
        columns: further columns to set, the same for all.

    Returns:
        False where none is in a state from which the transition leads.
    """
    rows = Attempt.objects.filter(pk__in=[one.pk for one in attempts])
    if not _update(transition, rows, at, columns):
        return False
    for one in attempts:
        one.state = transition.target
    return True


def transition_record(
    transition: TaskTransition, subjects: Iterable[TaskSubject], *, actor_id: int | None = None
) -> None:
    """Write the events of a transition, announce topics and notify; also for tasks just stored."""
    entries: list[NewEvent] = []
    topics: dict[str, None] = {}
    for one in subjects:
        entries.append(
            NewEvent(
                kind=transition.event,
                object_type="task",
                object_id=one.id,
                queue_id=one.queue_id,
                policy_id=one.policy_id,
                actor_id=actor_id,
                data=dict(one.data),
                is_audited=actor_id is not None and actor_id != one.owner_id,
            )
        )
        names = task_topics(
            one.id, queue_id=one.queue_id, policy_id=one.policy_id, pool_id=one.pool_id
        )
        topics.update(dict.fromkeys(names))
    events_record(entries, topics=topics)
    after_commit(notify=transition.notify)


def _update(
    transition: Transition,
    rows: "QuerySet[Any]",
    at: datetime | None,
    columns: Mapping[str, Any] | None,
) -> int:
    moment = at or timezone.now()
    values = {**transition.sets, **dict.fromkeys(transition.stamps, moment), **(columns or {})}
    return rows.filter(state__in=transition.sources).update(state=transition.target, **values)


def _dependencies_write(transition: TaskTransition, ids: Sequence[uuid.UUID]) -> None:
    """Decide about what waits for these tasks, and forget what they waited for themselves.

    Only rows of dependencies are written: the pass locks the tasks that wait.
    """
    if transition.target in DECIDING_STATES:
        waiting = TaskDependency.objects.filter(after__in=ids, outcome=DependencyOutcome.WAITING)
        met = [kind for kind in DependencyKind if outcome_of(kind, transition.target) == "met"]
        outcome = Case(
            When(when__in=met, then=Value(DependencyOutcome.MET.value)),
            default=Value(DependencyOutcome.UNMET.value),
        )
        waiting.update(outcome=outcome, is_due=True)
    if transition.sets.get("ineligible_code") == "":
        TaskDependency.objects.filter(task__in=ids).delete()


def _rules_end(moved: Iterable[TaskSubject], queue_id: int | None) -> None:
    """End rules of tasks that were in a queue and have just left it for this one, or for none.

    An exemption from the rule for idle tasks is one of the queue that they left.

    A draft keeps no rule, nor does a task that gets into the tree of another tenant. Otherwise the
    rules of its owner stay, and those end that managers of the queue or administrators gave.
    """
    before = {one.id: one.queue_before for one in moved if one.queue_before not in {None, queue_id}}
    if not before:
        return
    IdleExemption.objects.filter(task__in=list(before)).delete()
    ids = [pk for pk in {*before.values(), queue_id} if pk is not None]
    tenants = dict(Queue.objects.filter(pk__in=ids).values_list("pk", "policy__tenant_id"))
    kept = Q(
        content_object__in=[
            pk
            for pk, left in before.items()
            if queue_id is not None and tenants[left] == tenants[queue_id]
        ],
        created_by=F("content_object__owner"),
    )
    for model in (TaskUserPermission, TaskGroupPermission):
        model._default_manager.filter(content_object__in=list(before)).exclude(kept).delete()


def _rules_of_drafts_end() -> None:
    """End the rules of all tasks that are in no queue any more."""
    IdleExemption.objects.filter(task__queue=None).delete()
    for model in (TaskUserPermission, TaskGroupPermission):
        model._default_manager.filter(content_object__queue=None).delete()


def _batches(ids: Sequence[uuid.UUID]) -> Iterator[Sequence[uuid.UUID]]:
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]


def _lock(
    ids: Sequence[uuid.UUID], transition: TaskTransition, *, queue_id: int | None
) -> list[TaskSubject]:
    rows = Task.objects.filter(pk__in=ids, state__in=transition.sources)
    # With the lock, the UPDATE finds exactly the rows that were read; SQLite has one writer.
    found = list(
        rows.select_for_update(no_key=True)
        .order_by("pk")
        .values_list("pk", "state", "queue_id", "owner_id")
    )
    queues = {queue_id or row[2] for row in found} - {None}
    policies = dict(Queue.objects.filter(pk__in=queues).values_list("pk", "policy_id"))
    return [
        TaskSubject(
            id=pk,
            owner_id=owner,
            queue_id=queue_id or queue,
            queue_before=queue,
            policy_id=policies.get(queue_id or queue or 0),
            data={"from": state},
        )
        for pk, state, queue, owner in found
    ]
