"""The live configuration: what the engine, queues and nodes know."""

from django.db import models

from apps.core.models import Pausable, Removable, unique_name
from apps.policies.models.bases import PoolFields, PoolLinkFields, ProfileFields, SettingsFields


class LiveState(SettingsFields):
    """One row: the switch, the version and the settings of the live configuration.

    `version` grows with everything that could change a plan's configuration part.
    """

    is_enabled = models.BooleanField(
        default=True, help_text="Off: nothing is admitted and nobody preempted."
    )
    version = models.PositiveBigIntegerField(default=1)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(id=1), name="live_state_is_one_row"),
        ]

    def __str__(self) -> str:
        return f"version {self.version}"


class Pool(PoolFields, Removable, Pausable):
    dedicated_to = models.ForeignKey(
        "policies.Policy",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="dedicated_pools",
        help_text="Only work of this policy runs here.",
    )

    class Meta(PoolFields.Meta):
        constraints = [unique_name("pool", removable=True)]


class Profile(ProfileFields, Removable):
    pools: "models.ManyToManyField[Pool, PoolLink]" = models.ManyToManyField(
        Pool, through="PoolLink", related_name="profiles"
    )

    class Meta(ProfileFields.Meta):
        constraints = [unique_name("profile", removable=True)]


class PoolLink(PoolLinkFields):
    profile = models.ForeignKey(Profile, on_delete=models.CASCADE, related_name="links")
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="links")

    class Meta(PoolLinkFields.Meta):
        constraints = [
            models.UniqueConstraint(fields=["profile", "pool"], name="pool_link_once"),
        ]
