"""The image that an attempt runs, even if its name refers to another one later."""

from dataclasses import dataclass
from uuid import UUID

from django.db import transaction

from apps.tasks.models import Attempt
from apps.tasks.services.attempts.records import attempt_lock, attempt_record


@dataclass(frozen=True, slots=True)
class ImageIdentity:
    """Exactly one image: its digest in a registry, and its image ID on the node that reported it.

    `digest` is empty for an image that never was in a registry; the image ID identifies it then.
    """

    digest: str = ""
    image_id: str = ""

    def is_same(self, other: "ImageIdentity") -> bool:
        """Whether both are the same image, as far as the two nodes can tell."""
        if self.digest and other.digest:
            return self.digest == other.digest
        return self.image_id == other.image_id


def attempt_note_image(*, attempt_id: UUID, image: ImageIdentity) -> ImageIdentity:
    """Note what the first member of an attempt found under the name of its image.

    Returns:
        The image that all members run: the one that was noted first.
    """
    with transaction.atomic():
        attempt = attempt_lock(attempt_id)
        if attempt.image_id:
            return ImageIdentity(attempt.image_digest, attempt.image_id)
        Attempt.objects.filter(pk=attempt_id).update(
            image_digest=image.digest, image_id=image.image_id
        )
        attempt_record(attempt, [])
        return image
