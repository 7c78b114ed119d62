"""What the form of a new task suggests."""

from uuid import UUID

from apps.accounts.models import User
from apps.tasks.models import Task

# So many of the newest tasks of a user are read for suggestions.
RECENT_TASKS = 200
MOST_IMAGES = 20


def recent_images(user: User) -> list[str]:
    """The images of the user's latest tasks, the latest first."""
    newest = Task.objects.filter(owner=user).order_by("-pk")
    images = newest.values_list("content__image", flat=True)[:RECENT_TASKS]
    return [image for image in dict.fromkeys(images) if image][:MOST_IMAGES]


def own_task(user: User, key: str) -> Task | None:
    """The user's own task with this id, to be copied; None where there is none."""
    try:
        pk = UUID(key)
    except ValueError:
        return None
    return Task.objects.filter(pk=pk, owner=user).select_related("owner", "queue").first()
