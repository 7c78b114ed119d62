"""Waiting tasks sorted anew into runs, when what tells them apart has changed."""

from collections.abc import Collection

from apps.core.doorbell import after_commit
from apps.policies.models import Queue
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


def _reshape(queue: Queue) -> int:
    facts = queue_facts(queue)
    waiting = Task.objects.filter(queue=queue, state=TaskState.QUEUED)
    pairs = list(waiting.order_by().values_list("run", "owner").distinct())
    runs = Run.objects.in_bulk({run for run, _ in pairs})
    moved = 0
    for run_id, owner_id in pairs:
        run = runs[run_id]
        shape = Shape(
            request=run.request,
            replicas=run.replicas,
            priority=run.priority,
            is_preemptible=run.is_preemptible,
            user_id=owner_id if facts.has_user_limit else None,
            exceeds_limit=run.is_preemptible and owner_id in facts.exceeding,
        )
        if shape.digest() != run.shape:
            new = run_ensure(queue.pk, shape)
            moved += waiting.filter(run=run_id, owner=owner_id).update(run=new)
    return moved
