"""The task groups of a queue: its equal tasks, by the rules of now."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import (
    BigIntegerField,
    Case,
    CharField,
    Exists,
    F,
    OuterRef,
    QuerySet,
    Subquery,
    Value,
    When,
)

from apps.core.errors import Conflict
from apps.core.notifications import NOTIFY_ALLOCATION, after_commit
from apps.core.statements import Parameter, Statement
from apps.policies.models import Policy, Queue
from apps.policies.selectors import may_exceed_limit
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Task, TaskGroup
from apps.tasks.selectors.facts import queue_facts
from apps.tasks.shapes import TaskShape

REMOVED_AT_ONCE = 100
# Pairs of a group and an owner whose tasks one statement moves.
MOVED_AT_ONCE = 200


def task_group_ensure(queue_id: int, shape: TaskShape, *, most: int | None = None) -> int:
    """The id of the task group of this shape, created where it is new.

    Raises:
        Conflict: as many groups as `most` wait in the queue, and this one would be another.
    """
    found = task_groups_ensure(queue_id, [shape], most=most)
    if not found:
        raise too_many_groups(most or 0)
    return found[shape.digest()]


def waiting_task_group_id(queue_id: int, digest: str) -> int | None:
    """The id of the task group of the shape with this digest, where tasks of it wait already."""
    rows = _WAITING.rows(queue=queue_id, shape=digest)
    return rows[0][0] if rows else None


def task_groups_ensure(
    queue_id: int, shapes: Iterable[TaskShape], *, most: int | None = None
) -> dict[str, int]:
    """The ids of the groups of these shapes, by digest; a fixed number of queries.

    Args:
        most: how many groups may wait in the queue, which the caller has locked; None: any number.
            Groups beyond it are missing in the result.
    """
    wanted = {shape.digest(): shape for shape in shapes}
    if most is not None:
        wanted = _within(queue_id, wanted, most)
    ids = _group_ids(queue_id, wanted)
    new = sorted(wanted.keys() - ids)
    if new:
        rows = [_task_group(queue_id, digest, wanted[digest]) for digest in new]
        # Another request may create some of them at the same moment.
        TaskGroup.objects.bulk_create(rows, ignore_conflicts=True)
        ids = _group_ids(queue_id, wanted)
    return ids


def _within(queue_id: int, wanted: Mapping[str, TaskShape], most: int) -> dict[str, TaskShape]:
    """Those of the wanted groups that may wait: all that wait already, and others up to `most`."""
    waiting = TaskGroup.objects.filter(_has_waiting(), queue_id=queue_id)
    already = set(waiting.filter(shape__in=list(wanted)).values_list("shape", flat=True))
    others = sorted(wanted.keys() - already)
    if others:
        others = others[: max(most - waiting.count(), 0)]
    return {digest: wanted[digest] for digest in (*sorted(already), *others)}


def _has_waiting() -> Exists:
    return Exists(Task.objects.filter(task_group=OuterRef("pk"), state=TaskState.QUEUED))


def _waiting_one() -> "QuerySet[TaskGroup, Any]":
    """The group of a queue and a shape, if a task of it waits.

    The first one, in the order of its index: also a plan that was made while few tasks waited finds
    it there, however many wait later.
    """
    first = Task.objects.filter(task_group=OuterRef("pk"), state=TaskState.QUEUED)
    first = first.order_by("ineligible_code", "submitted_at", "pk")
    groups = TaskGroup.objects.annotate(first=Subquery(first.values("pk")[:1])).order_by()
    return groups.filter(
        first__isnull=False,
        queue=Parameter("queue", BigIntegerField()),
        shape=Parameter("shape", CharField()),
    ).values_list("pk")


_WAITING = Statement(_waiting_one)


def too_many_groups(most: int) -> Conflict:
    problem = (
        f"has {most} different sizes and priorities waiting, which is the most: use one of them, "
        "or enqueue this task later"
    )
    return Conflict(f"The queue {problem}.", fields={"queue": problem})


def empty_groups_remove(*, most: int) -> int:
    """Remove groups that no task refers to, of up to `most` groups; how many were removed.

    Their queue is locked, so that no request is putting a task into one of them: for a few groups
    at a time, because requests wait for it meanwhile.
    """
    unused = TaskGroup.objects.filter(~Exists(Task.objects.filter(task_group=OuterRef("pk"))))
    by_queue: dict[int, list[int]] = {}
    for pk, queue_id in unused.order_by("pk").values_list("pk", "queue_id")[:most]:
        by_queue.setdefault(queue_id, []).append(pk)
    removed = 0
    for queue_id, ids in sorted(by_queue.items()):
        for start in range(0, len(ids), REMOVED_AT_ONCE):
            with transaction.atomic():
                Queue.objects.select_for_update(no_key=True, of=("self",)).get(pk=queue_id)
                batch = ids[start : start + REMOVED_AT_ONCE]
                removed += unused.filter(pk__in=batch).delete()[0]
    return removed


def tasks_regroup(*, policy_ids: Collection[int]) -> int:
    """Split the task groups of these policies by user, or join them, as the limits say now.

    Call it in the transaction of the change. The lock on each queue prevents enqueueing by the old
    rules meanwhile.

    Returns:
        How many waiting tasks are in another group now.
    """
    queues = Queue.objects.filter(policy__in=policy_ids, removed_at__isnull=True)
    moved = sum(
        _regroup(queue)
        for queue in queues.select_related("profile")
        .select_for_update(no_key=True, of=("self",))
        .order_by("pk")
    )
    if moved:
        after_commit(notify=[NOTIFY_ALLOCATION])
    return moved


def task_regroup(task_id: UUID, *, policy_id: int) -> None:
    """Put a task that waits again into its group, by the rules that were set while it ran.

    Call it with its queue locked, as `tasks_regroup` does.
    """
    task = Task.objects.select_related("task_group").get(pk=task_id, state=TaskState.QUEUED)
    if task.task_group is None or task.queue_id is None:
        raise ValueError(f"task {task_id} waits in no task group")
    shape = _shape(
        task.task_group,
        owner_id=task.owner_id,
        has_user_limit=_has_user_limit(policy_id),
        exceeding=may_exceed_limit(policy_id) if task.task_group.is_preemptible else (),
    )
    if shape.digest() != task.task_group.shape:
        task_group_id = task_group_ensure(task.queue_id, shape)
        Task.objects.filter(pk=task_id, task_group=task.task_group_id).update(
            task_group=task_group_id
        )


def _group_ids(queue_id: int, digests: Iterable[str]) -> dict[str, int]:
    rows = TaskGroup.objects.filter(queue_id=queue_id, shape__in=list(digests))
    return dict(rows.values_list("shape", "pk"))


def _task_group(queue_id: int, digest: str, shape: TaskShape) -> TaskGroup:
    return TaskGroup(
        queue_id=queue_id,
        shape=digest,
        request=dict(shape.request) if shape.request is not None else None,
        replicas=shape.replicas,
        priority=shape.priority,
        is_preemptible=shape.is_preemptible,
        user_id=shape.user_id,
        exceeds_limit=shape.exceeds_limit,
    )


def _has_user_limit(policy_id: int) -> bool:
    """Whether the policy, or one above it, has a limit per user."""
    at: int | None = policy_id
    while at is not None:
        policy = Policy.objects.only("parent_id", "user_limit").get(pk=at)
        if policy.user_limit:
            return True
        at = policy.parent_id
    return False


def _regroup(queue: Queue) -> int:
    """Put the waiting tasks of the queue into their groups; a query for each `MOVED_AT_ONCE`."""
    facts = queue_facts(queue)
    waiting = Task.objects.filter(queue=queue, state=TaskState.QUEUED)
    pairs = list(waiting.order_by().values_list("task_group", "owner").distinct())
    task_groups = TaskGroup.objects.in_bulk({task_group for task_group, _ in pairs})
    shapes = {
        (pk, owner_id): _shape(
            task_groups[pk],
            owner_id=owner_id,
            has_user_limit=facts.has_user_limit,
            exceeding=facts.exceeding,
        )
        for pk, owner_id in pairs
    }
    moves = {
        (pk, owner_id): shape
        for (pk, owner_id), shape in shapes.items()
        if shape.digest() != task_groups[pk].shape
    }
    ids = task_groups_ensure(queue.pk, moves.values())
    moved, pairs_to_move = 0, list(moves.items())
    for start in range(0, len(pairs_to_move), MOVED_AT_ONCE):
        batch = pairs_to_move[start : start + MOVED_AT_ONCE]
        new = [
            When(task_group=pk, owner=owner_id, then=Value(ids[shape.digest()]))
            for (pk, owner_id), shape in batch
        ]
        pair = Case(*new, output_field=BigIntegerField())
        found = waiting.filter(task_group__in={pk for (pk, _), _ in batch})
        moved += found.annotate(new=pair).filter(new__isnull=False).update(task_group=F("new"))
    return moved


def _shape(
    task_group: TaskGroup, *, owner_id: int, has_user_limit: bool, exceeding: Collection[int]
) -> TaskShape:
    return TaskShape(
        request=task_group.request,
        replicas=task_group.replicas,
        priority=task_group.priority,
        is_preemptible=task_group.is_preemptible,
        user_id=owner_id if has_user_limit else None,
        exceeds_limit=task_group.is_preemptible and owner_id in exceeding,
    )
