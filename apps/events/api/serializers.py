"""Bodies of the audit log."""

from typing import Any

from rest_framework import serializers

from apps.events.models import AuditEntry


class AuditOtherSerializer(serializers.Serializer[Any]):
    """Another object that an entry concerns."""

    type = serializers.CharField()
    id = serializers.CharField()
    name = serializers.CharField(allow_blank=True)


class AuditEntrySerializer(serializers.ModelSerializer[AuditEntry]):
    """Names are those at that time; `position` is null until the entry is sealed, seconds later."""

    others = AuditOtherSerializer(many=True)
    before = serializers.DictField()
    after = serializers.DictField()
    details = serializers.DictField()

    class Meta:
        model = AuditEntry
        fields = [
            "id",
            "at",
            "verb",
            "actor_id",
            "actor",
            "acted_by_id",
            "acted_by",
            "object_type",
            "object_id",
            "object_name",
            "others",
            "before",
            "after",
            "details",
            "reason",
            "via",
            "request_id",
            "address",
            "position",
            "previous_hash",
            "hash",
        ]
        read_only_fields = fields


class AuditChainSerializer(serializers.Serializer[Any]):
    """The length of the chain, its last hash, and how many entries wait to be sealed."""

    length = serializers.IntegerField()
    head = serializers.CharField()
    unsealed = serializers.IntegerField()
