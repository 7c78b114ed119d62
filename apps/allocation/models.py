"""What passes decided."""

from django.db import models


class PassRecord(models.Model):
    """One pass that decided something, kept 30 days; the last 200 keep their snapshot.

    `decisions` is the plan as plain data; `snapshot` its input, as
    `apps.allocation.scenarios.storage` writes it.
    """

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    duration_ms = models.PositiveIntegerField()
    placed = models.PositiveIntegerField(default=0)
    preempted = models.PositiveIntegerField(default=0)
    moved = models.PositiveIntegerField(default=0, db_default=0)
    skipped = models.PositiveIntegerField(default=0)
    decisions = models.JSONField(default=dict)
    snapshot = models.BinaryField(null=True)

    class Meta:
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["at"], name="pass_at"),
            models.Index(
                fields=["id"],
                condition=models.Q(snapshot__isnull=False),
                name="pass_with_snapshot",
            ),
        ]

    def __str__(self) -> str:
        return f"pass {self.pk}"


class PassState(models.Model):
    """One row: the counter of passes that decided nothing, and when the last pass was.

    `failed_at` and `failure` are of the last pass that failed; later ones keep them.
    """

    last_at = models.DateTimeField(null=True)
    passes = models.PositiveBigIntegerField(default=0)
    idle_passes = models.PositiveBigIntegerField(default=0)
    last_duration_ms = models.PositiveIntegerField(default=0)
    failed_at = models.DateTimeField(null=True)
    failure = models.TextField(default="", db_default="")

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(id=1), name="pass_state_is_one_row"),
        ]

    def __str__(self) -> str:
        return f"{self.passes} passes"
