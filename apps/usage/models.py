"""Sums of usage per hour and day. They stay when the tasks that they come from are removed."""

from django.conf import settings
from django.db import models

from apps.policies.models import Policy, Pool, Queue
from apps.tasks.lifecycle.states import Tier

# How long tasks waited for their placement: the upper bound of each bucket in seconds.
WAIT_BUCKETS: dict[str, float] = {
    "waits_1m": 60,
    "waits_5m": 300,
    "waits_15m": 900,
    "waits_1h": 3600,
    "waits_4h": 4 * 3600,
    "waits_12h": 12 * 3600,
    "waits_1d": 24 * 3600,
    "waits_longer": float("inf"),
}


class Measures(models.Model):
    """What is summed up.

    `held` and `lost` are millionths of a GPU second: thousandths of GPU times milliseconds. `lost`
    is what attempts that were preempted or lost held since they last saved their state, booked when
    they ended. `started` counts placements; `waited_ms` is what those tasks had waited for them.
    `ended` counts every end; those that were aborted or lost are in none of the three after it.
    """

    held = models.BigIntegerField(default=0)
    lost = models.BigIntegerField(default=0)
    started = models.PositiveBigIntegerField(default=0)
    ended = models.PositiveBigIntegerField(default=0)
    completed = models.PositiveBigIntegerField(default=0)
    failed = models.PositiveBigIntegerField(default=0)
    preempted = models.PositiveBigIntegerField(default=0)
    waited_ms = models.PositiveBigIntegerField(default=0)
    waits_1m = models.PositiveBigIntegerField(default=0)
    waits_5m = models.PositiveBigIntegerField(default=0)
    waits_15m = models.PositiveBigIntegerField(default=0)
    waits_1h = models.PositiveBigIntegerField(default=0)
    waits_4h = models.PositiveBigIntegerField(default=0)
    waits_12h = models.PositiveBigIntegerField(default=0)
    waits_1d = models.PositiveBigIntegerField(default=0)
    waits_longer = models.PositiveBigIntegerField(default=0)

    class Meta:
        abstract = True


MEASURES: tuple[str, ...] = tuple(field.name for field in Measures._meta.get_fields())


class PolicyMeasures(Measures):
    """Of a policy in a pool, for one model of GPU and one tier; `at` is the beginning."""

    at = models.DateTimeField()
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="+")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="+")
    model = models.CharField(max_length=120, blank=True)
    tier = models.CharField(max_length=10, choices=Tier.choices, blank=True)

    class Meta:
        abstract = True
        constraints = [
            models.UniqueConstraint(
                fields=["at", "policy", "pool", "model", "tier"], name="%(class)s_once"
            )
        ]


class QueueMeasures(Measures):
    """Of a queue, with the policy that its tasks had."""

    at = models.DateTimeField()
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="+")
    queue = models.ForeignKey(Queue, on_delete=models.PROTECT, related_name="+")

    class Meta:
        abstract = True
        constraints = [
            models.UniqueConstraint(fields=["at", "policy", "queue"], name="%(class)s_once")
        ]


class OwnerMeasures(Measures):
    """Of the tasks of one user under a policy."""

    at = models.DateTimeField()
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="+")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")

    class Meta:
        abstract = True
        constraints = [
            models.UniqueConstraint(fields=["at", "policy", "owner"], name="%(class)s_once")
        ]


class PolicyHour(PolicyMeasures):
    pass


class PolicyDay(PolicyMeasures):
    pass


class QueueHour(QueueMeasures):
    pass


class QueueDay(QueueMeasures):
    pass


class OwnerHour(OwnerMeasures):
    pass


class OwnerDay(OwnerMeasures):
    pass


class ClosedHour(models.Model):
    """An hour that is summed up. `closed_at` is the time of the sums, by the database's clock."""

    at = models.DateTimeField(primary_key=True)
    closed_at = models.DateTimeField()
