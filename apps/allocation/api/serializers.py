"""Passes, and what they say about tasks, as REST shows them."""

from typing import Any

from rest_framework import serializers

from apps.allocation.models import PassRecord


class PassSerializer(serializers.ModelSerializer[PassRecord]):
    """One pass that decided something; `decisions` is its plan as plain data."""

    decisions = serializers.JSONField()

    class Meta:
        model = PassRecord
        fields = (
            *("id", "at", "duration_ms", "placed", "preempted", "moved", "skipped"),
            "decisions",
        )
        read_only_fields = fields


class ReasonSerializer(serializers.Serializer[Any]):
    """One reason; ids of what the reader may not see are null, `names` has a word for each."""

    code = serializers.CharField()
    sentence = serializers.CharField()
    help = serializers.CharField(help_text="What would help.")
    details = serializers.ListField(
        child=serializers.DictField(), help_text="Amounts are texts in units of `key`."
    )


class PastReasonSerializer(ReasonSerializer):
    at = serializers.DateTimeField(help_text="From then on, until the next one.")


class ExpectedStartSerializer(serializers.Serializer[Any]):
    """An estimate: four of five such tasks start between the two moments."""

    earliest = serializers.DateTimeField()
    latest = serializers.DateTimeField(
        allow_null=True, help_text="Null: later than anybody can say."
    )
    basis = serializers.ChoiceField(choices=["now", "time_limit", "queue", "all_queues"])
    sentence = serializers.CharField(help_text="What it goes by.")
    is_estimate = serializers.BooleanField(help_text="Always true: it is never a promise.")


class IdleWarningSerializer(serializers.Serializer[Any]):
    """Its GPUs have all been idle since then."""

    since = serializers.DateTimeField()
    stop_at = serializers.DateTimeField(
        allow_null=True,
        help_text="When its queue stops it at the earliest, if it stays idle; null: never.",
    )


class ExplanationSerializer(serializers.Serializer[Any]):
    """Why a task waits. `code`, `sentence` and `help` are of the dominant reason."""

    state = serializers.CharField()
    code = serializers.CharField(allow_blank=True)
    sentence = serializers.CharField(allow_blank=True)
    help = serializers.CharField(allow_blank=True)
    reasons = ReasonSerializer(many=True)
    position = serializers.IntegerField(allow_null=True, help_text="In its queue, from 1.")
    expected_start = ExpectedStartSerializer(allow_null=True)
    no_estimate = serializers.CharField(
        allow_blank=True, help_text="Why there is no estimate for a task that waits."
    )
    at = serializers.DateTimeField(allow_null=True, help_text="When the reason was last changed.")
    idle_warning = IdleWarningSerializer(allow_null=True)
    history = PastReasonSerializer(many=True)


class CheckSerializer(serializers.Serializer[Any]):
    """What the next pass would do with a task; `reasons` say why it would not run."""

    would_run = serializers.BooleanField()
    sentence = serializers.CharField()
    code = serializers.CharField(allow_blank=True)
    help = serializers.CharField(allow_blank=True)
    reasons = ReasonSerializer(many=True)
    pool = serializers.CharField(allow_blank=True, help_text='Or "your first pool".')
    nodes = serializers.ListField(
        child=serializers.CharField(), help_text="Only where one sees the pool."
    )
    tier = serializers.ChoiceField(choices=["reserved", "borrowed", "over_quota"], allow_blank=True)
    stops = serializers.IntegerField(help_text="Tasks that have to stop for it first.")
    stopped = serializers.ListField(
        child=serializers.CharField(), help_text="The names of those that one sees."
    )
    position = serializers.IntegerField(help_text="In its queue, from 1.")
    ahead = serializers.IntegerField(help_text="Waiting tasks of the queue that come first.")
