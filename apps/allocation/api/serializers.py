"""Passes, and what they say about tasks, as REST shows them."""

from typing import Any

from rest_framework import serializers

from apps.allocation.models import PassRecord


class PassSerializer(serializers.ModelSerializer[PassRecord]):
    """One pass that decided something; `decisions` is its plan as plain data."""

    decisions = serializers.JSONField()

    class Meta:
        model = PassRecord
        fields = ("id", "at", "duration_ms", "placed", "preempted", "skipped", "decisions")
        read_only_fields = fields


class ReasonSerializer(serializers.Serializer[Any]):
    """One reason; ids of what the reader may not see are null, `names` has a word for each."""

    code = serializers.CharField()
    sentence = serializers.CharField()
    help = serializers.CharField(help_text="What would help.")
    details = serializers.ListField(
        child=serializers.DictField(), help_text="Amounts are whole thousandths."
    )


class PastReasonSerializer(ReasonSerializer):
    at = serializers.DateTimeField(help_text="From then on, until the next one.")


class ExplanationSerializer(serializers.Serializer[Any]):
    """Why a task waits. `code`, `sentence` and `help` are of the dominant reason."""

    state = serializers.CharField()
    code = serializers.CharField(allow_blank=True)
    sentence = serializers.CharField(allow_blank=True)
    help = serializers.CharField(allow_blank=True)
    reasons = ReasonSerializer(many=True)
    place = serializers.IntegerField(allow_null=True, help_text="In its queue, from 1.")
    at = serializers.DateTimeField(allow_null=True, help_text="When the reason was last changed.")
    history = PastReasonSerializer(many=True)
