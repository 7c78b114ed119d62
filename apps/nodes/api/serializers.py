"""Bodies of nodes and volumes."""

from rest_framework import serializers

from apps.core.serializers import AmountsField, NameSerializer, StrictSerializer
from apps.nodes.models import Device, Node, Volume, VolumeScope


class DeviceSerializer(serializers.ModelSerializer[Device]):
    class Meta:
        model = Device
        fields = ["index", "uuid", "model", "memory_mb", "state", "is_simulated"]


class NodeSerializer(serializers.ModelSerializer[Node]):
    """Without the paths of keys on the server's own disk."""

    pool = NameSerializer(read_only=True)
    capacity = AmountsField(read_only=True)
    labels = serializers.DictField(read_only=True)
    devices = DeviceSerializer(many=True, read_only=True)
    is_paused = serializers.BooleanField(read_only=True)

    class Meta:
        model = Node
        fields = [
            "id",
            "name",
            "pool",
            "transport",
            "address",
            "port",
            "user",
            "runtime",
            "allows_process",
            "is_simulated",
            "labels",
            "state",
            "state_detail",
            "capacity",
            "gpu_model",
            "last_seen_at",
            "is_draining",
            "is_paused",
            "pause_reason",
            "devices",
        ]
        read_only_fields = fields


class VolumeSerializer(serializers.ModelSerializer[Volume]):
    pool = NameSerializer(read_only=True)

    class Meta:
        model = Volume
        fields = ["id", "name", "description", "path", "is_read_only", "scope", "pool"]
        read_only_fields = fields


class VolumeChangeSerializer(StrictSerializer):
    """`pool` is an id."""

    name = serializers.CharField(max_length=63)
    description = serializers.CharField(max_length=10_000, allow_blank=True, required=False)
    path = serializers.CharField(max_length=500)
    is_read_only = serializers.BooleanField(required=False)
    scope = serializers.ChoiceField(choices=VolumeScope.choices, required=False)
    pool = serializers.IntegerField(min_value=1, max_value=2**62, allow_null=True, required=False)
