"""The shapes of responses other than tasks, for the OpenAPI file."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.tasks.lifecycle.states import AttemptState
from apps.tasks.models.dependencies import DependencyKind, DependencyOutcome
from apps.tasks.models.gpu_use import IDLE_PERCENT


@extend_schema_field({"allOf": [{"$ref": "#/components/schemas/Task"}], "nullable": True})
class TaskField(serializers.JSONField):
    """`TaskDetail`."""


class ErrorSerializer(serializers.Serializer[Any]):
    """The one shape of an error."""

    code = serializers.CharField()
    detail = serializers.CharField()
    fields = serializers.DictField(child=serializers.CharField())  # type: ignore[assignment]  # the name of the API, not DRF's attribute
    request_id = serializers.CharField()


class BulkAnswerSerializer(serializers.Serializer[Any]):
    """The answer to one task of a bulk request: either is null."""

    task = TaskField()
    error = ErrorSerializer(allow_null=True)
    status = serializers.IntegerField()


class MemberSerializer(serializers.Serializer[Any]):
    """One member of an attempt."""

    rank = serializers.IntegerField()
    state = serializers.CharField()
    node = serializers.CharField(allow_null=True)
    ready_at = serializers.DateTimeField(
        allow_null=True,
        help_text="In a gang, since when its node has the image: it starts when all have it.",
    )
    detail = serializers.CharField(
        allow_null=True, help_text="Why its start waits, or how it ended."
    )
    devices = serializers.ListField(child=serializers.CharField())
    exit_code = serializers.IntegerField(allow_null=True)


class GpuUseSerializer(serializers.Serializer[Any]):
    """How an attempt used its GPUs, as far as they were sampled. Null: it is not known."""

    percent = serializers.IntegerField(
        allow_null=True, help_text="Mean utilisation; null where its GPUs do not say it."
    )
    memory_mb = serializers.IntegerField(help_text="The most in use on one GPU, in 2^20 bytes.")
    energy_wh = serializers.FloatField(help_text="0 where its GPUs do not say their power.")
    sampled_gpu_seconds = serializers.FloatField()
    sampled_at = serializers.DateTimeField()
    idle_since = serializers.DateTimeField(
        allow_null=True,
        help_text=f"Since when every GPU was below {IDLE_PERCENT} % when it was sampled last.",
    )


class GpuUseStepSerializer(serializers.Serializer[Any]):
    """Five minutes."""

    at = serializers.DateTimeField()
    percent = serializers.IntegerField(allow_null=True)
    memory_mb = serializers.IntegerField()


class GpuUseStepsSerializer(serializers.Serializer[Any]):
    """The last 14 days at most; five minutes without a sample are missing."""

    generation = serializers.IntegerField(allow_null=True)
    steps = GpuUseStepSerializer(many=True)


class IdleRuleSerializer(serializers.Serializer[Any]):
    """What the queue of a task says of idle tasks, and what that means for it now."""

    warn_minutes = serializers.IntegerField(allow_null=True, help_text="Null: it warns none.")
    stop_minutes = serializers.IntegerField(allow_null=True, help_text="Null: it stops none.")
    is_exempt = serializers.BooleanField()
    exempted_by = serializers.CharField(allow_null=True)
    exempted_at = serializers.DateTimeField(allow_null=True)
    idle_since = serializers.DateTimeField(
        allow_null=True, help_text="Of a warned task; null where there is no warning."
    )
    warned_at = serializers.DateTimeField(allow_null=True)
    stop_at = serializers.DateTimeField(
        allow_null=True, help_text="When it is stopped at the earliest, if it stays idle."
    )


class DependencySerializer(serializers.Serializer[Any]):
    """Another task that has to end first; its id, name and state are null where it is hidden."""

    task = serializers.UUIDField(allow_null=True)
    name = serializers.CharField(allow_null=True)
    state = serializers.CharField(allow_null=True)
    when = serializers.ChoiceField(choices=DependencyKind.values)
    outcome = serializers.ChoiceField(choices=DependencyOutcome.values)


class AttemptSerializer(serializers.Serializer[Any]):
    """One admission of a task. Pool and nodes are null for users who may not see the pool."""

    id = serializers.UUIDField()
    generation = serializers.IntegerField()
    state = serializers.ChoiceField(choices=AttemptState.choices)
    pool = serializers.CharField(allow_null=True)
    request = serializers.DictField(child=serializers.CharField())
    replicas = serializers.IntegerField()
    allocated_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    checkpointed_at = serializers.DateTimeField(
        allow_null=True, help_text="When the task last said that its state is saved."
    )
    ended_at = serializers.DateTimeField(allow_null=True)
    exit_code = serializers.IntegerField(allow_null=True)
    detail = serializers.CharField(allow_null=True)
    image_digest = serializers.CharField(
        allow_null=True,
        help_text="What the image's name stood for when the first member was launched; empty for "
        "an image that never was in a registry, and until it is known.",
    )
    image_id = serializers.CharField(
        allow_null=True, help_text="The same image's own number, as its node knows it."
    )
    gpu_use = GpuUseSerializer(allow_null=True)
    members = MemberSerializer(many=True)


class VaultNamedSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()


class VaultUsedSerializer(VaultNamedSerializer):
    """A vault in the version that counts; values that it no longer gives are left out."""

    version = serializers.IntegerField()
    kind = serializers.ChoiceField(choices=["personal", "group"])


class VaultValueSerializer(serializers.Serializer[Any]):
    """A value and its origin; `is_used` is false where the task sets it itself."""

    path = serializers.CharField()
    value = serializers.JSONField(
        allow_null=True,
        help_text="`********` for secrets, and for values of others' personal vaults.",
    )
    vault = VaultNamedSerializer()
    is_enforced = serializers.BooleanField()
    is_used = serializers.BooleanField()


class EffectiveVaultSerializer(serializers.Serializer[Any]):
    """The values that vaults give a task; `generation` is null for the current state."""

    generation = serializers.IntegerField(allow_null=True)
    vaults = VaultUsedSerializer(many=True)
    values = VaultValueSerializer(many=True)


class LogSerializer(serializers.Serializer[Any]):
    """A part of a member's output; continue at `next_offset`."""

    generation = serializers.IntegerField(allow_null=True)
    rank = serializers.IntegerField()
    offset = serializers.IntegerField()
    next_offset = serializers.IntegerField()
    is_cut = serializers.BooleanField()
    is_over = serializers.BooleanField(help_text="The attempt has ended; no more output follows.")
    text = serializers.CharField()
