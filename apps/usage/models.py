"""Sums of usage per hour and day. They stay when the tasks that they come from are removed."""

from django.conf import settings
from django.db import models

from apps.policies.models import Policy, Pool, Queue
from apps.tasks.lifecycle.states import AttemptTier

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
    """What is summed up; `at` is the beginning of the hour or day, in UTC.

    `held` and `lost` are millionths of a GPU second: thousandths of GPU times milliseconds. `lost`
    is what attempts that were preempted or lost held since they last saved their state, booked when
    they ended. `admitted` counts admissions; `waited_ms` is what those tasks had waited for them.
    `ended` counts every end; those that were aborted or lost are in none of `completed`, `failed`
    and `preempted`. `demand`, in the unit of `held`, is the GPUs that tasks waited for times how
    long they did, in the hours in which they waited, booked when they are admitted.

    Of what was held, in the same unit, `known` is where the utilisation of a whole GPU was sampled.
    `used` is that times the utilisation, `idle` five minutes each with less than `IDLE_PERCENT`.
    `no_process` was held without a process of the task that had the GPU open.

    `cost` is in millionths of the currency, at the rates of that time.
    """

    at = models.DateTimeField()
    held = models.BigIntegerField(default=0)
    lost = models.BigIntegerField(default=0)
    demand = models.BigIntegerField(default=0, db_default=0)
    known = models.BigIntegerField(default=0, db_default=0)
    used = models.BigIntegerField(default=0, db_default=0)
    idle = models.BigIntegerField(default=0, db_default=0)
    no_process = models.BigIntegerField(default=0, db_default=0)
    cost = models.BigIntegerField(default=0, db_default=0)
    admitted = models.BigIntegerField(default=0)
    ended = models.BigIntegerField(default=0)
    completed = models.BigIntegerField(default=0)
    failed = models.BigIntegerField(default=0)
    preempted = models.BigIntegerField(default=0)
    waited_ms = models.BigIntegerField(default=0)
    waits_1m = models.BigIntegerField(default=0)
    waits_5m = models.BigIntegerField(default=0)
    waits_15m = models.BigIntegerField(default=0)
    waits_1h = models.BigIntegerField(default=0)
    waits_4h = models.BigIntegerField(default=0)
    waits_12h = models.BigIntegerField(default=0)
    waits_1d = models.BigIntegerField(default=0)
    waits_longer = models.BigIntegerField(default=0)

    class Meta:
        abstract = True


MEASURES: tuple[str, ...] = tuple(
    field.name for field in Measures._meta.local_fields if field.name != "at"
)


class PolicyMeasures(Measures):
    """Of a policy in a pool, for one model of GPU and one tier."""

    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="+")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="+")
    model = models.CharField(max_length=120, blank=True)
    tier = models.CharField(max_length=10, choices=AttemptTier.choices, blank=True)

    class Meta:
        abstract = True
        constraints = [
            models.UniqueConstraint(
                fields=["at", "policy", "pool", "model", "tier"], name="%(class)s_once"
            )
        ]


class PolicyHour(PolicyMeasures):
    """One hour."""

    def __str__(self) -> str:
        return f"hour {self.at} of policy {self.policy_id} in pool {self.pool_id}"


class PolicyDay(PolicyMeasures):
    """One day."""

    def __str__(self) -> str:
        return f"day {self.at} of policy {self.policy_id} in pool {self.pool_id}"


class QueueDay(Measures):
    """One day of a queue, with the policy that its tasks had."""

    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="+")
    queue = models.ForeignKey(Queue, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["at", "policy", "queue"], name="%(class)s_once")
        ]

    def __str__(self) -> str:
        return f"day {self.at} of queue {self.queue_id}"


class OwnerDay(Measures):
    """One day of the tasks of one user under a policy."""

    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="+")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["at", "policy", "owner"], name="%(class)s_once")
        ]

    def __str__(self) -> str:
        return f"day {self.at} of owner {self.owner_id}"


class UseThreshold(models.Model):
    """One row: policies whose GPU use is below `gpu_percent` are marked; null: none is."""

    gpu_percent = models.PositiveSmallIntegerField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(id=1), name="use_threshold_is_one_row"),
            models.CheckConstraint(
                condition=models.Q(gpu_percent__range=(1, 100)), name="use_threshold_is_percent"
            ),
        ]

    def __str__(self) -> str:
        return f"below {self.gpu_percent} %"


class UsageRun(models.Model):
    """One row: when background work of this app was last done completely.

    What tasks waited for is summed up from `demand_since` on; null: as long as there are sums.
    """

    at = models.DateTimeField()
    demand_since = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(id=1), name="usage_run_is_one_row")
        ]

    def __str__(self) -> str:
        return f"done at {self.at}"


class ReservedSince(models.Model):
    """How much GPU a policy has reserved from `at` on, in thousandths, up to its next row."""

    policy = models.ForeignKey(Policy, on_delete=models.CASCADE, related_name="+")
    at = models.DateTimeField()
    milli = models.BigIntegerField()

    class Meta:
        ordering = ["policy", "at", "pk"]
        indexes = [models.Index(fields=["policy", "at"], name="reserved_since")]

    def __str__(self) -> str:
        return f"{self.milli}/1000 GPU of policy {self.policy_id} since {self.at}"


class Rate(models.Model):
    """What an hour of one unit of a resource costs from a moment on, a full hour.

    Without a pool it counts for all pools, without a model for all models; the one that names more
    goes first, the pool before the model. Its unit is one GPU or CPU, or 1024 MB of memory.
    """

    pool = models.ForeignKey(
        Pool, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    model = models.CharField(max_length=120, blank=True)
    key = models.CharField(max_length=63, default="gpu")
    price = models.DecimalField(max_digits=12, decimal_places=4)
    valid_from = models.DateTimeField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-valid_from", "-pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["valid_from", "pool", "model", "key"],
                name="rate_once",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.price} per {self.key} and hour from {self.valid_from}"
