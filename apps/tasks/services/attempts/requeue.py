"""Return of a task to its queue when its attempt ends."""

from apps.policies.models import Queue
from apps.tasks.lifecycle.transitions import DEQUEUE
from apps.tasks.lifecycle.writers import TaskSubject, task_transition
from apps.tasks.models import Attempt
from apps.tasks.services.task_groups import task_regroup


def task_requeue(attempt: Attempt) -> None:
    """Let the task of an attempt that has just ended wait among its equals, by the current rules.

    Where its queue was closed meanwhile, it becomes a draft instead. A placement that was kept for
    it is used by the next pass.
    """
    # Locked until the end, so that no request closes the queue or changes its rules meanwhile.
    queue = Queue.objects.select_for_update(no_key=True, of=("self",)).get(pk=attempt.queue_id)
    if queue.removed_at is None:
        task_regroup(attempt.task_id, policy_id=queue.policy_id)
        return
    task_transition(
        DEQUEUE,
        [TaskSubject.of(attempt)],
        generation=attempt.generation,
        changes={"state_detail": f"Queue {queue.name} was closed while the task ran."},
    )
