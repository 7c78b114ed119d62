"""Policies with their amounts, and the queues that connect them to profiles."""

from decimal import Decimal

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models

from apps.accounts.models import Tenant
from apps.core.fields import QuantitiesField
from apps.core.models import Pausable, Removable, unique_name
from apps.policies.models.bases import NAME_LENGTH
from apps.policies.models.live import Pool, Profile

QUEUE_NAME = RegexValidator(
    r"^[a-z0-9][a-z0-9._-]{0,62}$",
    "Use 1 to 63 small letters, digits, dot, dash or underscore; begin with letter or digit.",
)

LEAST_BUDGET = Decimal("0.0001")


# Shorter pauses are part of the work; samples of GPUs are kept for twice as long.
LEAST_IDLE_MINUTES, MOST_IDLE_MINUTES = 5, 7 * 24 * 60


class Policy(Removable, Pausable):
    """A user group's share of the hardware."""

    name = models.CharField(max_length=NAME_LENGTH)
    description = models.TextField(blank=True)
    position = models.PositiveIntegerField(default=0)
    group = models.ForeignKey(Group, on_delete=models.PROTECT, related_name="policies")
    parent = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="children"
    )
    tenant = models.ForeignKey(
        Tenant,
        null=True,
        blank=True,
        editable=False,
        on_delete=models.SET_NULL,
        related_name="policies",
        help_text="The tenant in whose tree it is; services keep it.",
    )
    weight = models.PositiveIntegerField(
        default=1,
        validators=[MaxValueValidator(1_000_000)],
        help_text="Part in what is shared fairly beyond reservations; 0: none.",
    )
    is_strict = models.BooleanField(
        default=False, help_text="No task starts before an earlier one of this policy."
    )
    user_limit = QuantitiesField(
        help_text="What one person may hold inside this policy; empty: no such limit."
    )
    logs_open_to_group = models.BooleanField(
        default=False, help_text="Members of the group may read each other's logs."
    )
    budget = models.DecimalField(
        null=True,
        blank=True,
        max_digits=12,
        decimal_places=4,
        validators=[MinValueValidator(LEAST_BUDGET)],
        help_text="What it may cost in a calendar month, with those below it; empty: any amount.",
    )
    budget_stops = models.BooleanField(
        default=False,
        db_default=False,
        help_text="No task starts in a month whose budget is spent; running ones go on.",
    )
    is_restricted = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text="It applies to chosen members of its group only.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["position", "id"]
        verbose_name_plural = "policies"
        permissions = [
            ("enqueue_policy", "Can enqueue"),
            ("manage_policy", "Can manage queues"),
            ("exceed_limit_policy", "Can exceed the limit"),
        ]
        constraints = [
            unique_name("policy", removable=True),
            models.CheckConstraint(
                condition=models.Q(parent__isnull=True) | ~models.Q(parent=models.F("id")),
                name="policy_is_not_its_own_parent",
                violation_error_message="A policy cannot be its own parent.",
            ),
            models.UniqueConstraint(
                fields=["tenant"],
                condition=models.Q(parent__isnull=True, removed_at__isnull=True),
                name="tenant_has_one_top",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class PolicyAmount(models.Model):
    """Reservation and limit of a policy for one key, in thousandths and as typed.

    `pool` None: the amount counts over all pools. An empty limit is none.
    """

    policy = models.ForeignKey(Policy, on_delete=models.CASCADE, related_name="amounts")
    pool = models.ForeignKey(Pool, null=True, blank=True, on_delete=models.CASCADE)
    key = models.CharField(max_length=63)
    reserved_text = models.CharField(max_length=32, blank=True)
    reserved_milli = models.BigIntegerField(null=True, blank=True)
    limit_text = models.CharField(max_length=32, blank=True)
    limit_milli = models.BigIntegerField(null=True, blank=True)

    class Meta:
        ordering = ["key", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["policy", "key"],
                condition=models.Q(pool__isnull=True),
                name="policy_amount_once",
            ),
            models.UniqueConstraint(
                fields=["policy", "pool", "key"],
                condition=models.Q(pool__isnull=False),
                name="policy_amount_once_per_pool",
            ),
            models.CheckConstraint(
                condition=models.Q(limit_milli__isnull=True)
                | models.Q(reserved_milli__isnull=True)
                | models.Q(reserved_milli__lte=models.F("limit_milli")),
                name="reservation_within_limit",
                violation_error_message="The reservation is above the limit.",
            ),
            models.CheckConstraint(
                condition=(models.Q(limit_milli__isnull=True) | models.Q(limit_milli__gte=0))
                & (models.Q(reserved_milli__isnull=True) | models.Q(reserved_milli__gte=0)),
                name="policy_amount_not_negative",
                violation_error_message="Amounts are not negative.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.key}: {self.reserved_text or '0'} to {self.limit_text or 'no limit'}"


class PolicySpending(models.Model):
    """What a policy with a budget, with those below it, cost in the calendar month up to `at`.

    `spent` is in millionths of the currency. `noticed` is the highest percentage of the budget that
    had a notice in this month, `noticed_budget` the budget of then: after a higher one there may be
    notices again.
    """

    policy = models.OneToOneField(
        Policy, primary_key=True, on_delete=models.CASCADE, related_name="spending"
    )
    at = models.DateTimeField()
    spent = models.BigIntegerField(default=0)
    noticed = models.PositiveSmallIntegerField(default=0)
    noticed_budget = models.DecimalField(max_digits=12, decimal_places=4)

    def __str__(self) -> str:
        return f"spending of policy {self.policy_id} up to {self.at}"


class OnPreemption(models.TextChoices):
    REQUEUE = "requeue", "return to the queue, keeping its place"
    PAUSE = "pause", "be paused"
    END = "end", "be ended"


class OnNodeLoss(models.TextChoices):
    WAIT = "wait", "wait for the node"
    REQUEUE = "requeue", "start again elsewhere once its lease has ended"
    FAIL = "fail", "fail once its lease has ended"


class Queue(Removable, Pausable):
    """One profile connected to one policy. Tasks are enqueued here and nowhere else."""

    name = models.CharField(
        max_length=63,
        validators=[QUEUE_NAME],
        help_text="People and programs address the queue by this name.",
    )
    profile = models.ForeignKey(Profile, on_delete=models.PROTECT, related_name="queues")
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="queues")
    queuing_rank = models.PositiveIntegerField(
        help_text="Place of the policy in the profile, from 0."
    )
    allow_over_quota = models.BooleanField(
        default=True, help_text="Tasks may use capacity beyond the reservation."
    )
    allow_streams = models.BooleanField(
        default=True,
        db_default=True,
        help_text="Commands, terminals, ports and copies are allowed in running tasks.",
    )
    on_preemption = models.CharField(
        max_length=8,
        choices=OnPreemption.choices,
        default=OnPreemption.REQUEUE,
        help_text="What a preempted task does.",
    )
    on_node_loss = models.CharField(
        max_length=8,
        choices=OnNodeLoss.choices,
        default=OnNodeLoss.WAIT,
        help_text="What a task does whose node fell silent.",
    )
    min_runtime_s = models.PositiveIntegerField(
        default=0, help_text="Seconds after its start in which a task is not preempted."
    )
    max_preemptions = models.PositiveIntegerField(
        null=True, blank=True, help_text="A task is preempted at most so often; empty: no limit."
    )
    grace_s = models.PositiveIntegerField(
        default=30,
        validators=[MaxValueValidator(86_400)],
        help_text="Seconds between asking a task to stop and killing it.",
    )
    max_priority = models.IntegerField(
        default=0,
        validators=[MinValueValidator(-1000), MaxValueValidator(1000)],
        help_text="The highest priority that a task may ask for.",
    )
    max_waiting = models.PositiveIntegerField(
        null=True, blank=True, help_text="Waiting tasks of one person; empty: no limit."
    )
    idle_warn_minutes = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(LEAST_IDLE_MINUTES), MaxValueValidator(MOST_IDLE_MINUTES)],
        help_text="A task is warned once all its GPUs were idle for so long; empty: never.",
    )
    idle_stop_minutes = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(LEAST_IDLE_MINUTES), MaxValueValidator(MOST_IDLE_MINUTES)],
        help_text="A warned task is stopped once it was idle for so long; empty: never.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        permissions = [("enqueue_queue", "Can enqueue"), ("manage_queue", "Can manage")]
        constraints = [
            unique_name("queue", removable=True),
            models.UniqueConstraint(
                fields=["profile", "policy"],
                condition=models.Q(removed_at__isnull=True),
                name="queue_once_per_policy",
                violation_error_message="This profile is connected to the policy already.",
            ),
            models.CheckConstraint(
                condition=models.Q(idle_stop_minutes__isnull=True)
                | models.Q(
                    idle_warn_minutes__isnull=False,
                    idle_stop_minutes__gt=models.F("idle_warn_minutes"),
                ),
                name="queue_idle_stop_after_warning",
                violation_error_message="Idle tasks are warned before they are stopped.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """As the constraint, naming the field.

        Raises:
            ValidationError: an idle task would be stopped without a warning before.
        """
        warn, stop = self.idle_warn_minutes, self.idle_stop_minutes
        if stop is not None and (warn is None or stop <= warn):
            problem = "Idle tasks are warned first: choose more minutes than for the warning."
            raise ValidationError({"idle_stop_minutes": problem})
