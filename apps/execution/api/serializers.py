"""Request and response bodies of the nodes' REST."""

from typing import Any

from rest_framework import serializers

from apps.core.serializers import AmountsField, StrictSerializer
from apps.nodes.models import Runtime
from apps.tasks.models.gpu_use import SAMPLES_DAYS

ADDRESS = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$"
FINGERPRINT = r"^SHA256:[A-Za-z0-9+/]{43}$"


class NameOrIdField(serializers.CharField):
    """A name, or a number, which is an id and never read as a name."""

    def to_internal_value(self, data: Any) -> Any:
        is_id = isinstance(data, int) and not isinstance(data, bool)
        return data if is_id else super().to_internal_value(data)


class NodeUseStepSerializer(serializers.Serializer[Any]):
    """Five minutes: means, and the most of the disk. Network in bytes in a second."""

    at = serializers.DateTimeField()
    cpu_percent = serializers.IntegerField(allow_null=True)
    memory_mb = serializers.IntegerField()
    disk_mb = serializers.IntegerField()
    received = serializers.IntegerField(allow_null=True)
    sent = serializers.IntegerField(allow_null=True)


class NodeUseSerializer(serializers.Serializer[Any]):
    """What a node used, oldest first; five minutes without a sample are missing."""

    steps = NodeUseStepSerializer(many=True)


class NodeUseQuerySerializer(StrictSerializer):
    """How many hours back."""

    hours = serializers.IntegerField(min_value=1, max_value=SAMPLES_DAYS * 24, default=24)


class NodeChangeSerializer(StrictSerializer):
    """`pool` is a name or id; `key` names a file in RPM_HOME on the server.

    `capacity_cap` keeps the rest of the node for its system. Labels and caps that are sent replace
    those that were there. Variables of its runtime can decide which program the node runs: they
    are set on the server only.
    """

    name = serializers.CharField(max_length=120)
    address = serializers.RegexField(ADDRESS)
    user = serializers.CharField(max_length=64)
    key = serializers.CharField(max_length=120)
    port = serializers.IntegerField(min_value=1, max_value=65535, required=False)
    pool = NameOrIdField(allow_null=True, required=False)
    runtime = serializers.ChoiceField(choices=Runtime.choices, required=False)
    allows_process = serializers.BooleanField(required=False)
    state_dir = serializers.CharField(max_length=500, allow_blank=True, required=False)
    labels = serializers.DictField(child=serializers.CharField(max_length=200), required=False)
    capacity_cap = AmountsField(required=False)


class NodeAddSerializer(NodeChangeSerializer):
    """`fingerprint` is that of the machine's host key, compared by who adds it.

    `is_shared_machine`: the machine may be another node's, too; both give out what it has.
    """

    fingerprint = serializers.RegexField(FINGERPRINT)
    is_shared_machine = serializers.BooleanField(required=False)


class NodeCheckSerializer(NodeChangeSerializer):
    """Without `fingerprint` nothing is sent to the machine: it shows its host key."""

    fingerprint = serializers.RegexField(FINGERPRINT, required=False)
    is_shared_machine = serializers.BooleanField(required=False)


class RekeySerializer(StrictSerializer):
    """`fingerprint` is that of the new key, compared with the machine's own.

    `is_replaced`: the machine was set up again or is another one; what ran on the old one is lost.
    While tasks are there, `reason` says why nothing of them runs any more.
    """

    fingerprint = serializers.RegexField(FINGERPRINT)
    is_replaced = serializers.BooleanField(default=False)
    reason = serializers.CharField(max_length=500, allow_blank=True, default="")


class RemoveSerializer(StrictSerializer):
    """`force` stops what runs there; `reason` is needed where the node does not answer."""

    force = serializers.BooleanField(default=False)
    reason = serializers.CharField(max_length=500, allow_blank=True, default="")


class HostKeySerializer(serializers.Serializer[Any]):
    """The key that is pinned, empty without one, and the one that the machine shows now."""

    pinned = serializers.CharField(allow_blank=True)
    shown = serializers.CharField()
    kind = serializers.CharField()


class NodeFindingSerializer(serializers.Serializer[Any]):
    """The result of one check; `fix` says what to do about it, empty where it is fine."""

    name = serializers.CharField()
    is_fine = serializers.BooleanField()
    words = serializers.CharField()
    fix = serializers.CharField(allow_blank=True)


class FoundDeviceSerializer(serializers.Serializer[Any]):
    index = serializers.IntegerField()
    uuid = serializers.CharField()
    model = serializers.CharField()
    memory_mb = serializers.IntegerField()


class NodeCheckedSerializer(serializers.Serializer[Any]):
    """What the machine shows and has; nothing of it is kept."""

    kind = serializers.CharField()
    fingerprint = serializers.CharField()
    findings = NodeFindingSerializer(many=True)
    devices = FoundDeviceSerializer(many=True)
