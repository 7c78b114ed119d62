"""The draft: what administrators edit until they provision it."""

from django.conf import settings
from django.db import models

from apps.core.models import unique_name
from apps.policies.models.bases import PoolFields, PoolLinkFields, ProfileFields, SettingsFields


class DraftState(SettingsFields):
    """One row: version of the draft (the ETag), who saved it, and what it began from."""

    version = models.PositiveBigIntegerField(default=1)
    base_revision = models.PositiveBigIntegerField(default=0)
    saved_at = models.DateTimeField(null=True, blank=True)
    saved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(id=1), name="draft_state_is_one_row"),
        ]

    def __str__(self) -> str:
        return f"draft version {self.version}"


class DraftPool(PoolFields):
    dedicated_to = models.ForeignKey(
        "policies.Policy",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="Only work of this policy runs here.",
    )

    class Meta(PoolFields.Meta):
        verbose_name = "pool"
        constraints = [unique_name("draft_pool", removable=False)]


class DraftProfile(ProfileFields):
    class Meta(ProfileFields.Meta):
        verbose_name = "profile"
        constraints = [unique_name("draft_profile", removable=False)]


class DraftPoolLink(PoolLinkFields):
    profile = models.ForeignKey(DraftProfile, on_delete=models.CASCADE, related_name="links")
    pool = models.ForeignKey(DraftPool, on_delete=models.CASCADE, related_name="links")

    class Meta(PoolLinkFields.Meta):
        verbose_name = "link to a pool"
        verbose_name_plural = "links to pools"
        constraints = [
            models.UniqueConstraint(fields=["profile", "pool"], name="draft_pool_link_once"),
        ]


class DraftQueueRank(models.Model):
    """The place of a queue's policy in the queuing order of a draft profile."""

    profile = models.ForeignKey(DraftProfile, on_delete=models.CASCADE, related_name="queue_ranks")
    queue = models.ForeignKey("policies.Queue", on_delete=models.CASCADE, related_name="+")
    rank = models.PositiveIntegerField()

    class Meta:
        ordering = ["rank", "id"]
        verbose_name = "place of a policy"
        verbose_name_plural = "queuing order"
        constraints = [
            models.UniqueConstraint(fields=["queue"], name="draft_queue_rank_once"),
        ]

    def __str__(self) -> str:
        return f"{self.rank}"
