"""Shapes of reports of usage."""

from typing import Any

from rest_framework import serializers

from apps.core.serializers import StrictSerializer
from apps.tasks.lifecycle.states import AttemptTier
from apps.usage.exports import gpu_s
from apps.usage.selectors.labels import UsageGroup
from apps.usage.selectors.report import HOUR, UsageLine, UsageReport, UsageSums

PERIOD = "Of 28 days up to today, without both."


class UsageQuerySerializer(StrictSerializer):
    """What a report is about."""

    since = serializers.DateField(required=False, help_text=f"First day, in UTC. {PERIOD}")
    until = serializers.DateField(required=False, help_text="Last day, in UTC. Default: today.")
    by = serializers.ChoiceField(
        [one.value for one in UsageGroup],
        default=UsageGroup.POLICY.value,
        help_text="What there is one line for.",
    )
    pool = serializers.CharField(
        required=False,
        max_length=150,
        help_text="Only this pool, by name or id; not with `queue` and `owner`.",
    )


class UsageSumsSerializer(serializers.Serializer[Any]):
    """GPU time in seconds of one GPU; `waited_seconds` is the sum over what started."""

    gpu_seconds = serializers.FloatField()
    gpu_seconds_by_tier = serializers.DictField(
        child=serializers.FloatField(),
        help_text=f"{', '.join(AttemptTier.values)}; empty for queues and owners.",
    )
    gpu_seconds_lost = serializers.FloatField(
        help_text="Held by preempted and lost attempts since they last saved their state."
    )
    started = serializers.IntegerField()
    ended = serializers.IntegerField()
    completed = serializers.IntegerField()
    failed = serializers.IntegerField()
    preempted = serializers.IntegerField()
    waited_seconds = serializers.FloatField()


class UsageStepSerializer(serializers.Serializer[Any]):
    """What was held in a day, or in an hour where `step` of the report is `hour`."""

    at = serializers.DateTimeField()
    gpu_seconds = serializers.FloatField()


class UsageLineSerializer(serializers.Serializer[Any]):
    """A policy's line contains those of the policies below it. Without `id`: all others."""

    id = serializers.CharField(allow_null=True)
    name = serializers.CharField()
    parent_id = serializers.IntegerField(allow_null=True)
    sums = UsageSumsSerializer()
    before = UsageSumsSerializer()
    steps = UsageStepSerializer(many=True)


class UsageSerializer(serializers.Serializer[Any]):
    """A report; `before` are as many days before the first one."""

    since = serializers.DateField()
    until = serializers.DateField()
    by = serializers.ChoiceField([one.value for one in UsageGroup])
    step = serializers.ChoiceField(["hour", "day"])
    total = UsageSumsSerializer()
    before = UsageSumsSerializer()
    lines = UsageLineSerializer(many=True)


def report_facts(report: UsageReport) -> dict[str, Any]:
    """The body of a response."""
    return {
        "since": report.period.first,
        "until": report.period.last,
        "by": report.by.value,
        "step": "hour" if report.step == HOUR else "day",
        "total": _sums(report.total),
        "before": _sums(report.before),
        "lines": [_line(one) for one in report.lines],
    }


def _line(line: UsageLine) -> dict[str, Any]:
    return {
        "id": None if line.key == 0 else str(line.key),
        "name": line.label,
        "parent_id": line.parent,
        "sums": _sums(line.sums),
        "before": _sums(line.before),
        "steps": [
            {"at": at, "gpu_seconds": gpu_s(held)}
            for at, held in sorted(line.sums.steps.items())
            if held
        ],
    }


def _sums(sums: UsageSums) -> dict[str, Any]:
    counted = ("started", "ended", "completed", "failed", "preempted")
    return {
        "gpu_seconds": gpu_s(sums["held"]),
        "gpu_seconds_by_tier": {tier: gpu_s(held) for tier, held in sums.tiers.items() if tier},
        "gpu_seconds_lost": gpu_s(sums["lost"]),
        "waited_seconds": sums["waited_ms"] / 1000,
        **{name: sums[name] for name in counted},
    }
