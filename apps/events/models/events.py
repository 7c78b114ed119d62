"""The append-only log of events and their actors."""

from django.conf import settings
from django.db import models


class Event(models.Model):
    """One thing that happened. Rows are added and never changed (a trigger refuses it).

    `kind` is a dotted word such as `task.running`; `object_type` and `object_id` name what it
    happened to; `queue_id` and `policy_id` say whose permissions decide who may read it (None: only
    administrators).
    """

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(auto_now_add=True)
    kind = models.CharField(max_length=64)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        db_constraint=False,
        related_name="+",
    )
    # The service account that acted for the actor.
    acted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        db_constraint=False,
        db_index=False,
        related_name="+",
    )
    object_type = models.CharField(max_length=32)
    object_id = models.CharField(max_length=64)
    queue_id = models.BigIntegerField(null=True, blank=True)
    policy_id = models.BigIntegerField(null=True, blank=True)
    data = models.JSONField(default=dict)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["object_type", "object_id", "-id"], name="event_object"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.object_id}"
