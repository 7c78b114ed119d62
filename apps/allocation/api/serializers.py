"""Passes as REST shows them."""

from rest_framework import serializers

from apps.allocation.models import PassRecord


class PassSerializer(serializers.ModelSerializer[PassRecord]):
    """One pass that decided something; `decisions` is its plan as plain data."""

    decisions = serializers.JSONField()

    class Meta:
        model = PassRecord
        fields = ("id", "at", "duration_ms", "placed", "preempted", "skipped", "decisions")
        read_only_fields = fields
