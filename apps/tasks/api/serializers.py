"""The shapes of requests and responses, for the OpenAPI file.

Requests are read by `apps.tasks.descriptions`, responses are made by `apps.tasks.task_payloads`
(`tests/tasks/api/test_shapes.py` compares them with these).
"""

from typing import Any

from rest_framework import serializers

from apps.tasks.lifecycle.states import AttemptState, TaskState
from apps.tasks.services.queue_order import MOVES


class AbortCallbackSerializer(serializers.Serializer[Any]):
    script = serializers.CharField(help_text="Run inside the container before SIGTERM.")
    language = serializers.ChoiceField(choices=["bash", "python"], default="bash")
    timeout_s = serializers.IntegerField(default=60, min_value=1, max_value=86_400)


class DescriptionSerializer(serializers.Serializer[Any]):
    """The description of a task. Without a queue it becomes a draft."""

    name = serializers.CharField(max_length=200)
    queue = serializers.JSONField(required=False, help_text="Name or id of the queue.")
    image = serializers.CharField(required=False)
    command = serializers.ListField(child=serializers.CharField(), required=False)
    environment = serializers.DictField(child=serializers.CharField(), required=False)
    secrets = serializers.DictField(
        child=serializers.CharField(),
        required=False,
        help_text="Each is a file in the container; NAME_FILE holds its path. Never shown again.",
    )
    working_dir = serializers.CharField(required=False)
    request = serializers.JSONField(
        required=False, help_text="Amounts per key, or a number of GPUs; dynamic profiles only."
    )
    replicas = serializers.IntegerField(required=False, min_value=1, max_value=4096)
    volumes = serializers.ListField(child=serializers.CharField(), required=False)
    priority = serializers.IntegerField(default=0, min_value=-1000, max_value=1000)
    is_preemptible = serializers.BooleanField(default=True)
    is_restartable = serializers.BooleanField(default=True)
    time_limit_s = serializers.IntegerField(required=False, min_value=1)
    retries = serializers.IntegerField(default=0, min_value=0, max_value=100)
    checkpoint_volume = serializers.CharField(
        required=False, help_text="Volume on which the task finds its checkpoints again."
    )
    abort_callback = AbortCallbackSerializer(required=False)
    tags = serializers.ListField(child=serializers.CharField(), required=False)


class TaskSummarySerializer(serializers.Serializer[Any]):
    """The fields that every user who sees the queue may read."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    state = serializers.ChoiceField(choices=TaskState.choices)
    queue_id = serializers.IntegerField(allow_null=True)
    queue = serializers.CharField(allow_null=True)
    policy_id = serializers.IntegerField(allow_null=True)
    owner = serializers.CharField()
    priority = serializers.IntegerField()
    request = serializers.DictField(
        child=serializers.CharField(), allow_null=True, help_text="Null: that of the profile."
    )
    replicas = serializers.IntegerField(allow_null=True, help_text="Null: those of the profile.")
    is_preemptible = serializers.BooleanField()
    is_restartable = serializers.BooleanField()
    time_limit_s = serializers.IntegerField(allow_null=True)
    retries = serializers.IntegerField()
    tags = serializers.ListField(child=serializers.CharField())
    generation = serializers.IntegerField(help_text="How often it was admitted.")
    preemptions = serializers.IntegerField()
    failures = serializers.IntegerField()
    exit_code = serializers.IntegerField(allow_null=True)
    created_at = serializers.DateTimeField()
    submitted_at = serializers.DateTimeField(allow_null=True)
    changed_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)


class TaskSerializer(TaskSummarySerializer):
    """The whole task; the last fields are null for users who may not read its content."""

    state_detail = serializers.CharField(allow_null=True)
    image = serializers.CharField(allow_null=True)
    command = serializers.ListField(child=serializers.CharField(), allow_null=True)
    environment = serializers.DictField(child=serializers.CharField(), allow_null=True)
    secrets = serializers.DictField(
        child=serializers.CharField(), allow_null=True, help_text="Names; every value is hidden."
    )
    working_dir = serializers.CharField(allow_null=True)
    volumes = serializers.ListField(child=serializers.CharField(), allow_null=True)
    checkpoint_volume = serializers.CharField(allow_null=True)
    abort_callback = AbortCallbackSerializer(allow_null=True)


class ErrorSerializer(serializers.Serializer[Any]):
    """The one shape of an error."""

    code = serializers.CharField()
    detail = serializers.CharField()
    fields = serializers.DictField(child=serializers.CharField())  # type: ignore[assignment]  # the name of the API, not DRF's attribute
    request_id = serializers.CharField()


class BulkAnswerSerializer(serializers.Serializer[Any]):
    """The answer to one task of a bulk request: either is null."""

    task = TaskSerializer(allow_null=True)
    error = ErrorSerializer(allow_null=True)
    status = serializers.IntegerField()


class QueueChoiceSerializer(serializers.Serializer[Any]):
    queue = serializers.JSONField(required=False, help_text="Name or id of the queue.")


class TaskReorderSerializer(serializers.Serializer[Any]):
    move = serializers.ChoiceField(choices=MOVES)
    other = serializers.UUIDField(
        required=False, help_text="The task to move before or after; only for these two moves."
    )


class PrioritySerializer(serializers.Serializer[Any]):
    priority = serializers.IntegerField(min_value=-1000, max_value=1000)


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
