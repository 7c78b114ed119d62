"""Bodies of nodes and volumes."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.core.serializers import AmountsField, NameSerializer, StrictSerializer
from apps.nodes.models import Device, Installation, Node, Volume, VolumeScope


class DeviceSerializer(serializers.ModelSerializer[Device]):
    class Meta:
        model = Device
        fields = [
            "index",
            "uuid",
            "model",
            "memory_mb",
            "state",
            "is_simulated",
            # The GPU that the device is a slice of (MIG); empty for a whole one.
            "parent_uuid",
        ]


class EnforcementSerializer(serializers.Serializer[Any]):
    """What holds tasks to their share of a device: "mig", "mps" or "accounted" (nothing).

    `detail` says why it is no more than accounted.
    """

    memory = serializers.CharField()
    compute = serializers.CharField()
    detail = serializers.CharField()


class NodeSerializer(serializers.ModelSerializer[Node]):
    """Without the paths of keys on the server's own disk."""

    pool = NameSerializer(read_only=True)
    capacity = AmountsField(read_only=True)
    capacity_cap = AmountsField(read_only=True)
    labels = serializers.DictField(read_only=True)
    devices = DeviceSerializer(many=True, read_only=True)
    is_paused = serializers.BooleanField(read_only=True)
    enforcement = serializers.SerializerMethodField()
    preflight_detail = serializers.CharField(source="preflight_problem", read_only=True)
    stops = serializers.SerializerMethodField()

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
            # Why the node starts no task, in its runtime's words; empty where it does.
            "preflight_detail",
            "capacity",
            "capacity_cap",
            "state_dir",
            "gpu_model",
            "last_seen_at",
            "off_at",
            "unknown_work",
            "serial_refused_at",
            "is_draining",
            "removal_asked_at",
            "removed_at",
            "is_paused",
            "pause_reason",
            "devices",
            "enforcement",
            "stops",
        ]
        read_only_fields = fields

    def get_stops(self, node: Node) -> list[str]:
        """Names of the tasks that a removal stops, in its answer; else empty."""
        return getattr(node, "stops", [])

    @extend_schema_field(EnforcementSerializer(allow_null=True))
    def get_enforcement(self, node: Node) -> dict[str, Any] | None:
        """As the node last said; null without real devices."""
        reported: dict[str, Any] | None = node.report.get("enforcement")
        return reported


class VolumeSerializer(serializers.ModelSerializer[Volume]):
    pool = NameSerializer(read_only=True)

    class Meta:
        model = Volume
        fields = [
            *("id", "name", "description", "path"),
            *("is_read_only", "is_restricted", "scope", "pool"),
        ]
        read_only_fields = fields


class VolumeChangeSerializer(StrictSerializer):
    """`pool` is an id. With `is_restricted` only those whom access rules name mount the volume.

    The first rule sets it.
    """

    name = serializers.CharField(max_length=63)
    description = serializers.CharField(max_length=10_000, allow_blank=True, required=False)
    path = serializers.CharField(max_length=500)
    is_read_only = serializers.BooleanField(required=False)
    is_restricted = serializers.BooleanField(required=False)
    scope = serializers.ChoiceField(choices=VolumeScope.choices, required=False)
    pool = serializers.IntegerField(min_value=1, max_value=2**62, allow_null=True, required=False)


class InstallationSerializer(serializers.ModelSerializer[Installation]):
    """Whether the database was restored from a backup, and until when leases are granted.

    `unsettled` are the nodes for which passes still wait after that was confirmed.
    """

    unsettled = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = Installation
        fields = ["key", "restored_at", "restore_confirmed_at", "unsettled", "maintenance_until"]
        read_only_fields = fields


class MaintenanceSerializer(StrictSerializer):
    """How long the control plane will be away; 0 ends it."""

    hours = serializers.FloatField(min_value=0, max_value=168)


class DeclareOffSerializer(StrictSerializer):
    """Why the machine is certainly off."""

    reason = serializers.CharField(max_length=500)
