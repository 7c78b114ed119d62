"""Shapes of reports of usage."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

from rest_framework import serializers

from apps.core.serializers import StrictSerializer
from apps.tasks.lifecycle.states import AttemptTier
from apps.tasks.models.gpu_use import IDLE_PERCENT
from apps.tasks.selectors.idle_attempts import IDLE_AFTER
from apps.usage.exports import COUNTED, USE, gpu_s, reserved_s
from apps.usage.models import WAIT_BUCKETS, Rate
from apps.usage.selectors.labels import UsageGroup
from apps.usage.selectors.rates import MOST_PRICE, cost_of, is_removable
from apps.usage.selectors.report import HOUR, UsageLine, UsageReport, UsageSums


class UsageQuerySerializer(StrictSerializer):
    """What a report is about."""

    since = serializers.DateField(
        required=False, help_text="First day, in UTC. Default: 27 days before `until`."
    )
    until = serializers.DateField(required=False, help_text="Last day, in UTC. Default: today.")
    by = serializers.ChoiceField(
        [one.value for one in UsageGroup],
        default=UsageGroup.POLICY.value,
        help_text="What each line is for.",
    )
    pool = serializers.CharField(
        required=False,
        max_length=150,
        help_text="Only this pool, by name or id; not with `profile`, `queue` and `owner`.",
    )


class UsageSumsSerializer(serializers.Serializer[Any]):
    """GPU time in seconds of one GPU, and attempts.

    `waited_seconds` is the sum over those admitted; `waits` counts them by the seconds within which
    they were admitted.
    """

    gpu_seconds = serializers.FloatField()
    gpu_seconds_by_tier = serializers.DictField(
        child=serializers.FloatField(),
        help_text=f"{', '.join(AttemptTier.values)}; empty for profiles, queues and owners.",
    )
    gpu_seconds_lost = serializers.FloatField(
        help_text="Held by preempted and lost attempts since they last saved their state."
    )
    gpu_seconds_measured = serializers.FloatField(
        help_text="Held while the utilisation of a whole GPU was sampled; the next two are of it."
    )
    gpu_seconds_used = serializers.FloatField(help_text="Times the utilisation.")
    gpu_seconds_idle = serializers.FloatField(
        help_text=f"In five minutes each with a utilisation below {IDLE_PERCENT} %."
    )
    gpu_seconds_without_process = serializers.FloatField(
        help_text="Sampled while no process of the task had the GPU open."
    )
    cost = serializers.DecimalField(
        max_digits=24, decimal_places=4, help_text="Of what was held, in `currency` of the report."
    )
    admitted = serializers.IntegerField()
    ended = serializers.IntegerField()
    completed = serializers.IntegerField()
    failed = serializers.IntegerField()
    preempted = serializers.IntegerField()
    waited_seconds = serializers.FloatField()
    waits = serializers.DictField(child=serializers.IntegerField())


class UsageStepSerializer(serializers.Serializer[Any]):
    """What was held in a day, or in an hour where `step` of the report is `hour`."""

    at = serializers.DateTimeField()
    gpu_seconds = serializers.FloatField()


class UsageLineSerializer(serializers.Serializer[Any]):
    """A policy's line contains those of the policies below it. `id` is null for hidden names."""

    id = serializers.CharField(allow_null=True)
    name = serializers.CharField()
    parent_id = serializers.CharField(allow_null=True)
    gpu_seconds_reservation = serializers.FloatField(
        allow_null=True, help_text="Of policies, unless others are below them and above them."
    )
    gpu_seconds_reservation_unused = serializers.FloatField(
        allow_null=True, help_text="Of these, held by no task that the reservation covers."
    )
    sums = UsageSumsSerializer()
    before = UsageSumsSerializer()
    steps = UsageStepSerializer(many=True)


class UsageSerializer(serializers.Serializer[Any]):
    """A report; `before` are as many days before the first one."""

    since = serializers.DateField()
    until = serializers.DateField()
    by = serializers.ChoiceField([one.value for one in UsageGroup])
    step = serializers.ChoiceField(["hour", "day"])
    currency = serializers.CharField(help_text="Empty where nothing has a price.")
    total = UsageSumsSerializer()
    before = UsageSumsSerializer()
    lines = UsageLineSerializer(many=True)


class UseThresholdSerializer(StrictSerializer):
    """Policies whose GPU use is below are marked; null: none is."""

    gpu_percent = serializers.IntegerField(min_value=1, max_value=100, allow_null=True)


class RateSerializer(serializers.ModelSerializer[Rate]):
    """What an hour of one GPU, one CPU, 1024 MB, or one unit of another key costs."""

    pool = serializers.CharField(source="pool.name", allow_null=True, help_text="Null: all pools.")
    is_removable = serializers.SerializerMethodField()

    class Meta:
        model = Rate
        fields = ("id", "pool", "model", "key", "price", "valid_from", "is_removable")

    def get_is_removable(self, rate: Rate) -> bool:
        """Whether nothing is summed up by it yet."""
        return is_removable(rate, self.context["unbooked"])


class RateCreateSerializer(StrictSerializer):
    """A rate counts from a full hour on of which nothing is summed up yet."""

    pool = serializers.CharField(
        max_length=150, default="", allow_blank=True, help_text="Name or id; empty: all pools."
    )
    model = serializers.CharField(
        max_length=120, default="", allow_blank=True, help_text="Empty: all models of GPU."
    )
    key = serializers.CharField(max_length=63, default="gpu")
    price = serializers.DecimalField(
        max_digits=12, decimal_places=4, min_value=Decimal(0), max_value=Decimal(MOST_PRICE)
    )
    valid_from = serializers.DateTimeField()


class IdleQuerySerializer(StrictSerializer):
    """From when on a task counts as idle."""

    minutes = serializers.IntegerField(
        min_value=5,
        max_value=14 * 24 * 60,
        default=IDLE_AFTER // timedelta(minutes=1),
        help_text="Only tasks whose GPUs have all been idle for so long.",
    )
    policy = serializers.CharField(
        required=False, max_length=150, help_text="Name or id; with the policies below it."
    )
    queue = serializers.CharField(required=False, max_length=150, help_text="Name or id.")
    owner = serializers.CharField(required=False, max_length=150, help_text="User name.")


class IdleAttemptSerializer(serializers.Serializer[Any]):
    """A task that holds GPUs without using them."""

    task_id = serializers.UUIDField()
    name = serializers.CharField()
    owner = serializers.CharField()
    policy = serializers.CharField()
    queue = serializers.CharField()
    gpus = serializers.CharField(help_text="Whole ones and shares, as in requests.")
    since = serializers.DateTimeField()
    gpu_seconds = serializers.FloatField(source="gpu_s", help_text="Held since then.")
    stop_at = serializers.DateTimeField(
        allow_null=True, help_text="When its queue stops it at the earliest, if it stays idle."
    )
    is_exempt = serializers.BooleanField(help_text="From what its queue says of idle tasks.")


def report_facts(report: UsageReport) -> dict[str, Any]:
    """The body of a response."""
    return {
        "since": report.period.first,
        "until": report.period.last,
        "by": report.by.value,
        "step": "hour" if report.step == HOUR else "day",
        "currency": report.currency,
        "total": _sums(report.total),
        "before": _sums(report.before),
        "lines": [_line(one) for one in report.lines],
    }


def _line(line: UsageLine) -> dict[str, Any]:
    reserved, unused = reserved_s(line.reserved)
    return {
        "id": None if line.key == 0 else str(line.key),
        "name": line.label,
        "parent_id": None if line.parent is None else str(line.parent),
        "gpu_seconds_reservation": reserved,
        "gpu_seconds_reservation_unused": unused,
        "sums": _sums(line.sums),
        "before": _sums(line.before),
        "steps": [
            {"at": at, "gpu_seconds": gpu_s(held)}
            for at, held in sorted(line.sums.steps.items())
            if held
        ],
    }


def _sums(sums: UsageSums) -> dict[str, Any]:
    return {
        "gpu_seconds": gpu_s(sums["held"]),
        "gpu_seconds_by_tier": {tier: gpu_s(held) for tier, held in sums.tiers.items() if tier},
        "gpu_seconds_lost": gpu_s(sums["lost"]),
        "waited_seconds": sums["waited_ms"] / 1000,
        "cost": cost_of(sums["cost"]),
        "waits": {
            "longer" if most_s == float("inf") else str(int(most_s)): sums[name]
            for name, most_s in WAIT_BUCKETS.items()
        },
        **{name: sums[name] for name in COUNTED},
        **{f"gpu_seconds_{name}": gpu_s(sums[measure]) for name, measure in USE.items()},
    }
