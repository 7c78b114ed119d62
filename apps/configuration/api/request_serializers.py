"""Bodies of requests that change policies and queues."""

from rest_framework import serializers

from apps.core.serializers import AmountsField, StrictSerializer
from apps.policies.models.bases import NAME_LENGTH
from apps.policies.models.policies import (
    LEAST_BUDGET,
    LEAST_IDLE_MINUTES,
    MOST_IDLE_MINUTES,
    OnNodeLoss,
    OnPreemption,
)

_WHOLE = 2**31 - 1


class PolicyChangeSerializer(StrictSerializer):
    """`group` and `parent` are names; amounts that are sent replace all of their kind."""

    name = serializers.CharField(max_length=NAME_LENGTH)
    description = serializers.CharField(max_length=10_000, allow_blank=True, required=False)
    group = serializers.CharField(max_length=150)
    parent = serializers.CharField(  # type: ignore[assignment]  # the metaclass removes it
        max_length=NAME_LENGTH, allow_null=True, required=False
    )
    reserved = AmountsField(required=False, allow_null=True)
    limit = AmountsField(required=False, allow_null=True)
    weight = serializers.IntegerField(min_value=0, max_value=1_000_000, required=False)
    is_strict = serializers.BooleanField(required=False)
    user_limit = AmountsField(required=False, allow_null=True)
    logs_open_to_group = serializers.BooleanField(required=False)
    budget = serializers.DecimalField(
        max_digits=12,
        decimal_places=4,
        min_value=LEAST_BUDGET,
        allow_null=True,
        required=False,
        help_text="In the currency, per calendar month.",
    )
    budget_stops = serializers.BooleanField(required=False)


class ConnectSerializer(StrictSerializer):
    """`profile` is a name or an id; without `queue` the name is suggested."""

    profile = serializers.CharField(max_length=NAME_LENGTH)
    queue = serializers.CharField(max_length=63, required=False)


def _idle_minutes() -> serializers.IntegerField:
    return serializers.IntegerField(
        min_value=LEAST_IDLE_MINUTES, max_value=MOST_IDLE_MINUTES, allow_null=True, required=False
    )


class QueueChangeSerializer(StrictSerializer):
    name = serializers.CharField(max_length=63, required=False)
    allow_over_quota = serializers.BooleanField(required=False)
    allow_streams = serializers.BooleanField(required=False)
    on_preemption = serializers.ChoiceField(choices=OnPreemption.choices, required=False)
    on_node_loss = serializers.ChoiceField(choices=OnNodeLoss.choices, required=False)
    min_runtime_s = serializers.IntegerField(min_value=0, max_value=_WHOLE, required=False)
    max_preemptions = serializers.IntegerField(
        min_value=0, max_value=_WHOLE, allow_null=True, required=False
    )
    grace_s = serializers.IntegerField(min_value=0, max_value=86_400, required=False)
    max_priority = serializers.IntegerField(min_value=-1000, max_value=1000, required=False)
    max_waiting = serializers.IntegerField(
        min_value=0, max_value=_WHOLE, allow_null=True, required=False
    )
    idle_warn_minutes = _idle_minutes()
    idle_stop_minutes = _idle_minutes()


class ReorderSerializer(StrictSerializer):
    """Every queue of the profile exactly once, by name or id."""

    profile = serializers.CharField(max_length=NAME_LENGTH)
    order = serializers.ListField(child=serializers.CharField(max_length=63), max_length=10_000)
