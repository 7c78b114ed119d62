"""Which image an attempt runs, whatever its name comes to stand for meanwhile."""

from dataclasses import dataclass
from uuid import UUID

from django.db import transaction

from apps.tasks.models import Attempt
from apps.tasks.services.attempts.rows import locked, tell


@dataclass(frozen=True, slots=True)
class Image:
    """Exactly one image: its digest in a registry, and its number on the node that told of it.

    `digest` is empty for one that never was in a registry; the number stands for it then.
    """

    digest: str = ""
    number: str = ""

    def is_same(self, other: "Image") -> bool:
        """Whether both are one image, as far as the two nodes can tell."""
        if self.digest and other.digest:
            return self.digest == other.digest
        return self.number == other.number


def attempt_note_image(*, attempt_id: UUID, image: Image) -> Image:
    """Note what the first member of an attempt found under the name of its image.

    Returns:
        What all of its members run: what was noted first.
    """
    with transaction.atomic():
        attempt = locked(attempt_id)
        if attempt.image_id:
            return Image(attempt.image_digest, attempt.image_id)
        Attempt.objects.filter(pk=attempt_id).update(
            image_digest=image.digest, image_id=image.number
        )
        tell(attempt, [])
        return image
