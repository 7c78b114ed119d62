"""The fields of pools, profiles and links, for the live rows and their draft twins alike.

The twins are different tables, so that no query can mix them up; `key` joins the two.
"""

import uuid

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from apps.core.fields import QuantitiesField

NAME_LENGTH = 120


class OverQuota(models.TextChoices):
    PRIORITY = "priority", "by order of policies and priority"
    FAIR_SHARE = "fair_share", "by fair shares"


class Preemption(models.TextChoices):
    NONE = "none", "nobody is preempted"
    RECLAIM = "reclaim", "reservations reclaim what others borrowed"
    PRIORITY = "priority", "and higher priority within a policy"
    RANK = "rank", "and better rank among over-quota work"


class Queueing(models.TextChoices):
    BEST_EFFORT = "best_effort", "later tasks may pass one that has to wait"
    STRICT = "strict", "no task starts before an earlier one of its policy"


class SettingsFields(models.Model):
    """Settings of the whole configuration."""

    queueing = models.CharField(
        max_length=16,
        choices=Queueing.choices,
        default=Queueing.BEST_EFFORT,
        db_default=Queueing.BEST_EFFORT,
        help_text="Of all policies; a single policy can be set to be strict.",
    )
    over_quota = models.CharField(
        max_length=16,
        choices=OverQuota.choices,
        default=OverQuota.PRIORITY,
        help_text="How capacity beyond the reservations is shared out.",
    )
    preemption = models.CharField(
        max_length=16,
        choices=Preemption.choices,
        default=Preemption.RECLAIM,
        help_text=(
            "Which tasks may be preempted; the last level needs over-quota work to be ordered by "
            "policies and priority."
        ),
    )
    consolidation = models.BooleanField(
        default=False, help_text="Running tasks may be moved to free capacity on one node."
    )

    class Meta:
        abstract = True


class PoolFields(models.Model):
    """Capacity that is given out."""

    key = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    name = models.CharField(max_length=NAME_LENGTH)
    description = models.TextField(blank=True)
    position = models.PositiveIntegerField(
        default=0, help_text="Place among the pools on the pages; new pools come last."
    )
    capacity = QuantitiesField(
        help_text="Amount per resource key. Count whole GPUs; shares are set in profiles."
    )
    backfill = models.BooleanField(
        default=True,
        help_text="Smaller tasks may start while earlier ones wait for more capacity.",
    )
    preemption = models.CharField(
        max_length=16,
        choices=Preemption.choices,
        blank=True,
        default="",
        db_default="",
        help_text="Which tasks may be preempted here; empty: as in the whole configuration.",
    )
    allowed_images = models.JSONField(
        default=list,
        blank=True,
        db_default=models.Value([], models.JSONField()),
        help_text="Images that may run here, such as registry.example.org/team/*; empty: all.",
    )

    class Meta:
        abstract = True
        ordering = ["position", "id"]

    def __str__(self) -> str:
        return self.name


class ProfileFields(models.Model):
    """What one task takes."""

    key = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    name = models.CharField(max_length=NAME_LENGTH)
    description = models.TextField(blank=True)
    position = models.PositiveIntegerField(default=0)
    request = QuantitiesField(help_text="Amount per resource key that one member takes.")
    replicas = models.PositiveIntegerField(
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(4096)],
        help_text="Members of one task; all start together or not at all.",
    )
    is_dynamic = models.BooleanField(
        default=False, help_text="A task may bring its own request; this one is the default."
    )
    request_min = QuantitiesField(help_text="The least that a task may ask for, if dynamic.")
    request_max = QuantitiesField(help_text="The most that a task may ask for, if dynamic.")
    device_models = models.JSONField(
        default=list, blank=True, help_text="Device models that will do; empty: any."
    )
    volumes = models.JSONField(
        default=list, blank=True, help_text="Names of the volumes that tasks may mount."
    )
    shm_mb = models.PositiveIntegerField(
        null=True, blank=True, help_text="Shared memory in MB; empty: half the memory."
    )
    host_network = models.BooleanField(default=False, help_text="Tasks use the node's own network.")
    read_only_root = models.BooleanField(
        default=False, help_text="The image's file system cannot be written to."
    )
    allow_streams = models.BooleanField(
        default=True,
        db_default=True,
        help_text="Commands, terminals, ports and copies are allowed in running tasks.",
    )
    extra_permissions = models.JSONField(
        default=list,
        blank=True,
        db_default=models.Value([], models.JSONField()),
        help_text="Beyond the usual: root, capability:NAME, device:/dev/PATH; empty: nothing.",
    )

    class Meta:
        abstract = True
        ordering = ["position", "id"]

    def __str__(self) -> str:
        return self.name


class PoolLinkFields(models.Model):
    """Lets a profile run in a pool, with the routing and execution order, counted from 0."""

    name = models.CharField(max_length=NAME_LENGTH)
    routing_rank = models.PositiveIntegerField(help_text="Place of the pool in the profile.")
    execution_rank = models.PositiveIntegerField(help_text="Place of the profile in the pool.")

    class Meta:
        abstract = True
        ordering = ["routing_rank", "id"]

    def __str__(self) -> str:
        return self.name
