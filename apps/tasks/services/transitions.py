"""State transitions of tasks; every change of a state goes through `tasks_move`.

An edge is one conditional UPDATE: a row that is not in the expected state any more is left alone
and is missing in the result. `apps.tasks.states` lists the legal edges; a trigger in the database
refuses all others.
"""

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.core.notifications import after_commit
from apps.events.services import Entry, events_record
from apps.policies.models import Queue
from apps.tasks.models import Task
from apps.tasks.states import ENDED_STATES, TASK_EDGES, TaskState
from apps.tasks.topics import task_topics

ALLOCATE = "allocation.run_pass"
NOTIFY_EXECUTION = "execution.poll"
# The most rows of one statement.
BATCH = 1000
# The workers to notify once tasks are in a state. For all other states it is the pass: a task
# that leaves its state may let others start.
_NOTIFICATIONS = {
    TaskState.ALLOCATED: (NOTIFY_EXECUTION,),
    TaskState.RUNNING: (),
    TaskState.STOPPING: (NOTIFY_EXECUTION,),
}


@dataclass(frozen=True, slots=True)
class TaskTransition:
    """A moved task: its previous state, and the queue, policy and owner that it concerns."""

    id: uuid.UUID
    previous: str
    generation: int
    queue_id: int | None
    policy_id: int | None
    owner_id: int
    name: str = ""


def tasks_move(
    ids: Iterable[uuid.UUID],
    *,
    expected: Collection[str],
    to: str,
    actor_id: int | None = None,
    generation: int | None = None,
    changes: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] | None = None,
    topics: Iterable[str] = (),
) -> list[TaskTransition]:
    """Move those of the tasks that are in one of the expected states to the state `to`.

    Writes an event `task.<state>` for each, announces topics and notifies workers, all with the
    open transaction, else with one of its own. Batches are locked in order of id, so that two
    callers never deadlock.

    Args:
        generation: only tasks with this generation; None where it does not matter.
        changes: further columns to set, the same for all; may hold expressions such as `F()`.
        data: further data of the events, in addition to the two states.
        topics: further topics to announce, e.g. `pool.3`.

    Returns:
        The tasks that moved; the others are stale.

    Raises:
        ValueError: the table of edges does not list one of these edges.
    """
    illegal = [state for state in expected if to not in TASK_EDGES[state]]
    if illegal:
        raise ValueError(f"there is no edge from {illegal[0]} to {to}")
    wanted = sorted(set(ids))
    with transaction.atomic():
        moved: list[TaskTransition] = []
        for batch in _batches(wanted):
            moved += _move_batch(
                batch, expected=expected, to=to, generation=generation, changes=changes or {}
            )
        tasks_announce(moved, to=to, actor_id=actor_id, data=data, topics=topics)
    return moved


def tasks_announce(
    moved: Sequence[TaskTransition],
    *,
    to: str,
    actor_id: int | None,
    data: Mapping[str, Any] | None = None,
    topics: Iterable[str] = (),
) -> None:
    """Write the events of an edge, announce topics, and notify workers."""
    if not moved:
        return
    entries = [
        Entry(
            kind=f"task.{to}",
            object_type="task",
            object_id=task.id,
            queue_id=task.queue_id,
            policy_id=task.policy_id,
            actor_id=actor_id,
            data={"from": task.previous, **(data or {})},
            is_audited=actor_id is not None and actor_id != task.owner_id,
        )
        for task in moved
    ]
    names: dict[str, None] = dict.fromkeys(topics)
    for task in moved:
        names.update(
            dict.fromkeys(task_topics(task.id, queue_id=task.queue_id, policy_id=task.policy_id))
        )
    events_record(entries, topics=names)
    after_commit(notify=_NOTIFICATIONS.get(TaskState(to), (ALLOCATE,)))


def _batches(ids: Sequence[uuid.UUID]) -> Iterator[Sequence[uuid.UUID]]:
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]


def _move_batch(
    ids: Sequence[uuid.UUID],
    *,
    expected: Collection[str],
    to: str,
    generation: int | None,
    changes: Mapping[str, Any],
) -> list[TaskTransition]:
    rows = Task.objects.filter(pk__in=ids, state__in=list(expected))
    if generation is not None:
        rows = rows.filter(generation=generation)
    # With the lock, the UPDATE finds exactly the rows that were read; SQLite has one writer.
    found: list[tuple[uuid.UUID, str, int, int | None, int]] = list(
        rows.select_for_update(no_key=True)
        .order_by("pk")
        .values_list("pk", "state", "generation", "queue_id", "owner_id")
    )
    if not found:
        return []
    # The event of a task that enters a queue by this edge belongs to that queue.
    entered = changes.get("queue_id")
    queues = {row[0]: entered or row[3] for row in found}
    policies = _policies({queue for queue in queues.values() if queue is not None})
    now = timezone.now()
    values: dict[str, Any] = {"state": to, "changed_at": now}
    if to in ENDED_STATES:
        values["ended_at"] = now
    Task.objects.filter(pk__in=[row[0] for row in found], state__in=list(expected)).update(
        **values, **changes
    )
    return [
        TaskTransition(
            id=pk,
            previous=state,
            generation=number,
            queue_id=queues[pk],
            policy_id=policies.get(queues[pk] or 0),
            owner_id=owner,
        )
        for pk, state, number, _, owner in found
    ]


def _policies(queue_ids: set[int]) -> dict[int, int]:
    if not queue_ids:
        return {}
    return dict(Queue.objects.filter(pk__in=queue_ids).values_list("pk", "policy_id"))
