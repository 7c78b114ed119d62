"""Return of a task to its queue when its attempt ends."""

from datetime import datetime

from apps.events.services import Entry, events_record
from apps.policies.models import Queue
from apps.tasks.models import Attempt, Task
from apps.tasks.services.task_group_changes import task_regroup
from apps.tasks.services.task_moves import attempt_move
from apps.tasks.states import TaskState
from apps.tasks.topics import task_topics


def task_requeue(attempt: Attempt, *, at: datetime) -> None:
    """Move the task of an attempt that has just ended on, by the current rules.

    It gets the placement that was kept for it at once, or waits among its equals. Where its queue
    was closed meanwhile, it becomes a draft instead.
    """
    # Locked until the end, so that no request closes the queue or changes its rules meanwhile.
    queue = Queue.objects.select_for_update(no_key=True, of=("self",)).get(pk=attempt.queue_id)
    if queue.removed_at is not None:
        _return_to_draft(attempt, queue)
    elif not attempt.moves_to or not attempt_move(attempt, at=at):
        task_regroup(attempt.task_id, policy_id=queue.policy_id)


def _return_to_draft(attempt: Attempt, queue: Queue) -> None:
    Task.objects.filter(
        pk=attempt.task_id, state=TaskState.QUEUED, generation=attempt.generation
    ).update(
        state=TaskState.DRAFT,
        queue=None,
        task_group=None,
        submitted_at=None,
        waiting_since=None,
        state_detail=f"Queue {queue.name} was closed while the task ran.",
    )
    entry = Entry(
        kind="task.draft",
        object_type="task",
        object_id=attempt.task_id,
        queue_id=attempt.queue_id,
        policy_id=attempt.policy_id,
        data={"generation": attempt.generation, "pool": attempt.pool_id},
    )
    topics = task_topics(
        attempt.task_id,
        queue_id=attempt.queue_id,
        policy_id=attempt.policy_id,
        pool_id=attempt.pool_id,
    )
    events_record([entry], topics=topics)
