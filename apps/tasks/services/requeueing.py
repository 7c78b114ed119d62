"""What becomes of a task that goes back to its queue when its attempt ends."""

from datetime import datetime

from apps.events.services import Entry, events_record
from apps.policies.models import Queue
from apps.tasks.models import Attempt, Task
from apps.tasks.services.moving import attempt_move
from apps.tasks.services.reshaping import task_reshape
from apps.tasks.states import TaskState
from apps.tasks.topics import task_topics


def task_wait_again(attempt: Attempt, *, at: datetime) -> None:
    """Let the task of an attempt that has just ended go where it belongs by the rules of now.

    It is admitted at once to the seats that were kept for it, or waits among its equals. Where the
    queue was closed meanwhile it becomes a draft instead.
    """
    # Held until the end, so that nobody closes the queue or changes its rules meanwhile.
    queue = Queue.objects.select_for_update(no_key=True, of=("self",)).get(pk=attempt.queue_id)
    if queue.removed_at is not None:
        _leave(attempt, queue)
    elif not attempt.moves_to or not attempt_move(attempt, at=at):
        task_reshape(attempt.task_id, policy_id=queue.policy_id)


def _leave(attempt: Attempt, queue: Queue) -> None:
    Task.objects.filter(
        pk=attempt.task_id, state=TaskState.QUEUED, generation=attempt.generation
    ).update(
        state=TaskState.DRAFT,
        queue=None,
        run=None,
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
