"""The waiting tasks of a user who may not sign in any more."""

from apps.accounts.models import User
from apps.accounts.selectors import is_admin, people_managed_by
from apps.core.errors import NotAllowed
from apps.tasks.details import shorten
from apps.tasks.models import Task
from apps.tasks.services.lifecycle import OUT_OF_QUEUE
from apps.tasks.services.transitions import tasks_move
from apps.tasks.states import TaskState


def owner_tasks_dequeue(*, actor: User, owner: User) -> int:
    """Turn all waiting tasks of this user into drafts; running tasks continue.

    Returns:
        How many became drafts.

    Raises:
        NotAllowed: the actor is no administrator.
    """
    if not is_admin(actor) and not people_managed_by(actor).filter(pk=owner.pk).exists():
        raise NotAllowed("Only administrators can dequeue tasks of others.")
    waiting = Task.objects.filter(owner=owner, state=TaskState.QUEUED)
    moved = tasks_move(
        waiting.values_list("pk", flat=True),
        expected=(TaskState.QUEUED,),
        to=TaskState.DRAFT,
        actor_id=actor.pk,
        changes={**OUT_OF_QUEUE, "state_detail": shorten(f"dequeued by {actor.username}")},
    )
    return len(moved)
