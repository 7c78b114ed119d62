"""Waiting tasks sorted anew into runs, when what tells them apart has changed."""

from collections.abc import Collection
from uuid import UUID

from apps.core.doorbell import after_commit
from apps.policies.models import Policy, Queue
from apps.policies.selectors import may_exceed_limit
from apps.tasks.models import Run, Task
from apps.tasks.selectors.facts import queue_facts
from apps.tasks.services.runs import run_ensure
from apps.tasks.services.transitions import DECIDE
from apps.tasks.shapes import Shape
from apps.tasks.states import TaskState


def tasks_reshape(*, policy_ids: Collection[int]) -> int:
    """Split the runs of these policies by person, or join them, as the limits say now.

    Call it in the transaction of the change. The lock on each queue lets nobody enqueue by the old
    rules meanwhile.

    Returns:
        How many waiting tasks are in another run now.
    """
    queues = Queue.objects.filter(policy__in=policy_ids, removed_at__isnull=True)
    moved = sum(
        _reshape(queue)
        for queue in queues.select_related("profile")
        .select_for_update(no_key=True, of=("self",))
        .order_by("pk")
    )
    if moved:
        after_commit(tasks=[DECIDE])
    return moved


def task_reshape(task_id: UUID, *, policy_id: int) -> None:
    """Sort a task that waits again into its run, by the rules that were set while it ran.

    Call it with its queue locked, as `tasks_reshape` does.
    """
    task = Task.objects.select_related("run").get(pk=task_id, state=TaskState.QUEUED)
    if task.run is None or task.queue_id is None:
        raise ValueError(f"task {task_id} waits in no run")
    shape = _shape(
        task.run,
        owner_id=task.owner_id,
        has_user_limit=_has_user_limit(policy_id),
        exceeding=may_exceed_limit(policy_id) if task.run.is_preemptible else (),
    )
    if shape.digest() != task.run.shape:
        run_id = run_ensure(task.queue_id, shape)
        Task.objects.filter(pk=task_id, run=task.run_id).update(run=run_id)


def _has_user_limit(policy_id: int) -> bool:
    """Whether the policy, or one above it, limits what one person holds."""
    at: int | None = policy_id
    while at is not None:
        policy = Policy.objects.only("parent_id", "user_limit").get(pk=at)
        if policy.user_limit:
            return True
        at = policy.parent_id
    return False


def _reshape(queue: Queue) -> int:
    facts = queue_facts(queue)
    waiting = Task.objects.filter(queue=queue, state=TaskState.QUEUED)
    pairs = list(waiting.order_by().values_list("run", "owner").distinct())
    runs = Run.objects.in_bulk({run for run, _ in pairs})
    moved = 0
    for run_id, owner_id in pairs:
        run = runs[run_id]
        shape = _shape(
            run,
            owner_id=owner_id,
            has_user_limit=facts.has_user_limit,
            exceeding=facts.exceeding,
        )
        if shape.digest() != run.shape:
            new = run_ensure(queue.pk, shape)
            moved += waiting.filter(run=run_id, owner=owner_id).update(run=new)
    return moved


def _shape(run: Run, *, owner_id: int, has_user_limit: bool, exceeding: Collection[int]) -> Shape:
    return Shape(
        request=run.request,
        replicas=run.replicas,
        priority=run.priority,
        is_preemptible=run.is_preemptible,
        user_id=owner_id if has_user_limit else None,
        exceeds_limit=run.is_preemptible and owner_id in exceeding,
    )
