"""The audit log: who changed what, from where, with a hash over each entry and the one before."""

from django.db import models
from django.utils import timezone

NAME_LENGTH = 300
# The hash "before" the first entry.
GENESIS = "0" * 64


class AuditEntry(models.Model):
    """One action of a person, a service account or a user at the command line.

    Rows are added and never changed or removed (triggers refuse it). A new row has the last three
    columns empty; sealing fills them once, in one order (`apps.events.services.seals`).
    All names are those at that time, and no column refers to a row that could change or go.
    """

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(default=timezone.now)
    verb = models.CharField(max_length=100)
    # None: nobody was signed in, or it was done at the command line.
    actor_id = models.BigIntegerField(null=True, blank=True)
    actor = models.CharField(max_length=NAME_LENGTH, blank=True)
    # The service account that acted for the actor.
    acted_by_id = models.BigIntegerField(null=True, blank=True)
    acted_by = models.CharField(max_length=NAME_LENGTH, blank=True)
    object_type = models.CharField(max_length=32)
    object_id = models.CharField(max_length=64)
    object_name = models.CharField(max_length=NAME_LENGTH, blank=True)
    # Further objects that it concerned: [{"type", "id", "name"}, ...].
    others = models.JSONField(default=list, blank=True)
    before = models.JSONField(default=dict, blank=True)
    after = models.JSONField(default=dict, blank=True)
    details = models.JSONField(default=dict, blank=True)
    reason = models.TextField(blank=True)
    # page, rest, admin site, command line.
    via = models.CharField(max_length=20, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    address = models.CharField(max_length=45, blank=True)

    position = models.BigIntegerField(null=True, blank=True, unique=True)
    previous_hash = models.CharField(max_length=64, blank=True)
    hash = models.CharField(max_length=64, blank=True)

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "audit entries"
        indexes = [
            models.Index(fields=["at"], name="audit_at"),
            models.Index(fields=["actor_id", "-id"], name="audit_actor"),
            models.Index(fields=["verb", "-id"], name="audit_verb"),
            models.Index(fields=["object_type", "object_id", "-id"], name="audit_object"),
            models.Index(
                fields=["id"], name="audit_unsealed", condition=models.Q(position__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.verb} {self.object_name or self.object_id}"

    @property
    def is_sealed(self) -> bool:
        return self.position is not None


class AuditChain(models.Model):
    """The length of the chain and its last hash: one row, locked while entries are sealed."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    length = models.BigIntegerField(default=0)
    head = models.CharField(max_length=64, default=GENESIS)

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="audit_chain_is_one")]

    def __str__(self) -> str:
        return f"{self.length} entries"
