"""Finding the queue that somebody names, with the rights that they need."""

from django.db.models import QuerySet

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.core.errors import NotAllowed, NotFound
from apps.policies.models import Queue
from apps.policies.selectors import queues_managed_by, queues_open_to, queues_visible_to
from apps.tasks.models import Task


def queue_open_to(user: User, given: str | int) -> Queue:
    """The queue of this name or id, on which the user may enqueue; locked until the commit.

    The lock makes sure that a queue which is being closed takes no task any more.

    Raises:
        NotFound: there is none that the user may see.
        NotAllowed: they see it and may not enqueue.
    """
    pk = _named(queues_open_to(user), given)
    if pk is None:
        if _named(queues_visible_to(user), given) is None:
            raise not_found(given)
        raise NotAllowed(f"You may not enqueue in queue {given}.", fields={"queue": "is not open"})
    locked = Queue.objects.select_for_update(no_key=True, of=("self",)).select_related("profile")
    queue = locked.filter(pk=pk, removed_at__isnull=True).first()
    if queue is None:
        raise not_found(given)
    return queue


def may_manage(user: User, queue_id: int | None) -> bool:
    """Whether the user may reorder the queue and abort others' tasks in it."""
    return queue_id is not None and queues_managed_by(user).filter(pk=queue_id).exists()


def check_may(user: User, task: Task) -> None:
    """One's own tasks, those of queues that one manages, and all for administrators.

    Raises:
        NotAllowed: it is neither.
    """
    if task.owner_id == user.pk or is_admin(user) or may_manage(user, task.queue_id):
        return
    raise NotAllowed("This task is somebody else's, and you do not manage its queue.")


def check_open_to_owner(task: Task, queue: Queue) -> None:
    """What waits is charged to its owner and runs with their vaults: who manages a queue puts
    nothing of theirs where they could not.

    Raises:
        NotAllowed: the owner may not enqueue there.
    """
    if not queues_open_to(task.owner).filter(pk=queue.pk).exists():
        problem = f"is not open to {task.owner}, whose task it is"
        raise NotAllowed(f"Queue {queue.name} {problem}.", fields={"queue": problem})


def not_found(given: str | int) -> NotFound:
    return NotFound(
        f"There is no queue {given}, or you may not see it.",
        fields={"queue": "is unknown: give the name or id of a queue"},
    )


def _named(queues: QuerySet[Queue], given: str | int) -> int | None:
    """A name comes first: it may consist of digits."""
    if isinstance(given, str):
        pk = queues.filter(name=given).values_list("pk", flat=True).first()
        if pk is not None or not given.isascii() or not given.isdigit():
            return pk
        given = int(given)
    # Larger numbers are no ids, and SQLite cannot even hold them.
    if not 0 < given < 2**63:
        return None
    return queues.filter(pk=given).values_list("pk", flat=True).first()
