"""Shapes of what pools have and of what is held now."""

from collections.abc import Callable, Mapping
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.core.units import milli_text
from apps.usage.selectors.current_facts import CurrentFacts


@extend_schema_field(OpenApiTypes.STR)
class MilliField(serializers.Field[int, Any, str, Any]):
    """Thousandths, shown as people write amounts; for responses only."""

    def to_representation(self, value: int) -> str:
        return milli_text(value)


class SharesSerializer(serializers.Serializer[Any]):
    """Whether tasks are held to their share of a device: "enforced" or "accounted" (they are not).

    `methods` says by what ("mig", "mps", "accounted"), `detail` why it is no more than accounted.
    """

    memory = serializers.CharField()
    compute = serializers.CharField()
    methods = serializers.ListField(child=serializers.CharField())
    detail = serializers.CharField()


class DifferenceSerializer(serializers.Serializer[Any]):
    """A key of which nodes have `less` or `more` than configured; or GPUs of several `models`."""

    code = serializers.ChoiceField(choices=["less", "more", "models"])
    key = serializers.CharField()
    configured = MilliField()
    found = MilliField()
    sentence = serializers.CharField()


class ServedSerializer(serializers.Serializer[Any]):
    """What the healthy nodes of a pool have, and how that differs from its `capacity`.

    `drift` is empty where they agree, and for a pool without nodes; `since` when a worker saw it.
    """

    nodes = serializers.IntegerField()
    healthy = serializers.IntegerField()
    found = serializers.DictField(child=MilliField())
    missing = serializers.IntegerField()
    occupied = serializers.IntegerField()
    models = serializers.DictField(child=serializers.IntegerField())
    drift = DifferenceSerializer(many=True)
    since = serializers.DateTimeField(allow_null=True)


class PoolCurrentSerializer(serializers.Serializer[Any]):
    """What tasks hold now, of all who may use it."""

    used = serializers.DictField(child=MilliField())


class CurrentSerializer(PoolCurrentSerializer):
    """What is held and what waits now; of a policy, with those below it.

    `oldest_wait_at` is since when the first of the waiting tasks waits.
    """

    running = serializers.IntegerField()
    waiting = serializers.IntegerField()
    oldest_wait_at = serializers.DateTimeField(allow_null=True)


def current_field(
    serializer: Any, row: Any, read: Callable[[list[int]], Mapping[int, CurrentFacts]]
) -> CurrentFacts:
    """The figures of this row, read once for all rows of a page, which have one context."""
    context: Any = serializer.context
    if "current" not in context:
        rows = getattr(serializer.parent, "instance", None) or [row]
        context["current"] = read([one.pk for one in rows])
    found: CurrentFacts = context["current"][row.pk]
    return found
