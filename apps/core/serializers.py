"""Parts of REST bodies that several apps use."""

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.core.errors import MOST_PROBLEMS, BadInput
from apps.core.suggestions import nearest, shorten
from apps.core.units import quantities_text

# A client that sends more unknown fields than this did not mistype one.
MOST_SUGGESTIONS = 5

_AMOUNT = {"oneOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}


@extend_schema_field(
    {
        "oneOf": [{"type": "object", "additionalProperties": _AMOUNT}, *_AMOUNT["oneOf"]],
        "description": (
            "Amount per resource key: a number, a decimal text with at most three places, or a "
            "share such as 1/7. A bare amount is a number of GPUs."
        ),
        "example": {"gpu": 4},
    }
)
class AmountsField(serializers.Field[dict[str, str], Any, dict[str, str], Any]):
    """Amounts per key, checked for their form; services check which keys are known."""

    def to_internal_value(self, data: Any) -> dict[str, str]:
        try:
            return quantities_text(data, field=self.field_name or "amount", keys=None)
        except BadInput as error:
            name = f"{self.field_name}."
            nested = {k.removeprefix(name): [v] for k, v in error.fields.items()}
            flat = nested.pop(self.field_name or "", None)
            raise serializers.ValidationError(flat or nested) from error

    def to_representation(self, value: dict[str, str]) -> dict[str, str]:
        return value


class StrictSerializer(serializers.Serializer[Any]):
    """Unknown fields are refused with the nearest known one."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            known = sorted(n for n, field in self.fields.items() if not field.read_only)
            unknown = [str(name) for name in data if name not in known][:MOST_PROBLEMS]
            if unknown:
                raise serializers.ValidationError(_unknown_problems(unknown, known))
        return super().to_internal_value(data)


class NameSerializer(serializers.Serializer[Any]):
    """Another row, named."""

    id = serializers.IntegerField()
    name = serializers.CharField()


class PauseSerializer(StrictSerializer):
    """Why something is paused; shown to those who wait."""

    reason = serializers.CharField(max_length=500, allow_blank=True, default="")


def _unknown_problems(names: list[str], known: list[str]) -> dict[str, list[str]]:
    problems = {}
    for index, name in enumerate(names):
        near = nearest(name, known) if index < MOST_SUGGESTIONS else ""
        suggestion = f" Did you mean {near!r}?" if near else ""
        problems[shorten(name)] = [f"This field is not known.{suggestion}"]
    return problems
