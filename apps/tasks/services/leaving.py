"""What becomes of the waiting tasks of somebody who may not come in any more."""

from apps.accounts.models import User
from apps.accounts.selectors import is_admin, people_managed_by
from apps.core.errors import NotAllowed
from apps.tasks.details import shortened
from apps.tasks.models import Task
from apps.tasks.services.ending import OUT_OF_LINE
from apps.tasks.services.transitions import tasks_move
from apps.tasks.states import TaskState


def waiting_take_out(*, actor: User, owner: User) -> int:
    """Take everything of this person that waits out of line; it becomes drafts. What runs goes on.

    Returns:
        How many.

    Raises:
        NotAllowed: the actor does not administer.
    """
    if not is_admin(actor) and not people_managed_by(actor).filter(pk=owner.pk).exists():
        raise NotAllowed("Only administrators take out what others have waiting.")
    waiting = Task.objects.filter(owner=owner, state=TaskState.QUEUED)
    moved = tasks_move(
        waiting.values_list("pk", flat=True),
        expected=(TaskState.QUEUED,),
        to=TaskState.DRAFT,
        actor_id=actor.pk,
        changes={**OUT_OF_LINE, "state_detail": shortened(f"taken out by {actor.username}")},
    )
    return len(moved)
