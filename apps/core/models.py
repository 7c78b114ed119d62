"""Abstract models without words of the domain."""

from django.db import models
from django.db.models.functions import Lower

NAME_TAKEN = "This name is taken: choose another."


class Removable(models.Model):
    """Nothing that a task ever referred to is deleted: it leaves every list and frees its name."""

    removed_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        abstract = True

    @property
    def is_removed(self) -> bool:
        return self.removed_at is not None


class Pausable(models.Model):
    """Can be paused singly, with a reason."""

    paused_at = models.DateTimeField(null=True, blank=True, editable=False)
    pause_reason = models.CharField(max_length=500, blank=True)

    class Meta:
        abstract = True

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None


def unique_name(kind: str, *, removable: bool) -> models.UniqueConstraint:
    """Names are unique within their kind, without regard to case."""
    return models.UniqueConstraint(
        Lower("name"),
        condition=models.Q(removed_at__isnull=True) if removable else None,
        name=f"{kind}_name_unique",
        violation_error_message=NAME_TAKEN,
    )
