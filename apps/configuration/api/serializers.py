"""Bodies of configuration, policies and queues."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.accounts.selectors import is_admin
from apps.configuration.api.current import (
    CurrentSerializer,
    PoolCurrentSerializer,
    ServedSerializer,
    SharesSerializer,
    current_field,
)
from apps.configuration.models import Revision
from apps.core import clock
from apps.core.serializers import AmountsField, NameSerializer, StrictSerializer
from apps.nodes.capacity import PoolCapacity
from apps.nodes.selectors import (
    capacity_by_pool,
    drifting_since,
    enforcement_by_pool,
    volumes_mountable_by,
)
from apps.policies.budgets import budget_of, month_of
from apps.policies.document import NOUNS
from apps.policies.models import Policy, Pool, Profile, Queue
from apps.usage.selectors.current_facts import (
    current_of_policies,
    current_of_pools,
    current_of_queues,
)

# --- documents -------------------------------------------------------------------------------


class FindingSerializer(serializers.Serializer[Any]):
    path = serializers.CharField()
    code = serializers.CharField()
    detail = serializers.CharField()


class ChangeSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(choices=list(NOUNS))
    name = serializers.CharField()
    what = serializers.ChoiceField(choices=["added", "removed", "changed", "moved"])
    field = serializers.CharField()
    before = serializers.JSONField(allow_null=True)
    after = serializers.JSONField(allow_null=True)
    sentence = serializers.CharField(source="__str__")


class AppliedSerializer(serializers.Serializer[Any]):
    """What a configuration file changes; `revision` is the last one."""

    revision = serializers.IntegerField()
    version = serializers.CharField(
        help_text="A digest of everything that files can change: objects, groups, access rules."
    )
    is_changed = serializers.BooleanField()
    changes = ChangeSerializer(many=True)


class RevisionDiffSerializer(serializers.Serializer[Any]):
    older = serializers.IntegerField()
    newer = serializers.IntegerField()
    changes = ChangeSerializer(many=True)


class DraftChangesSerializer(serializers.Serializer[Any]):
    version = serializers.IntegerField()
    base_revision = serializers.IntegerField()
    saved_at = serializers.DateTimeField(allow_null=True)
    saved_by = serializers.CharField(allow_null=True)
    changes = ChangeSerializer(many=True)


class SwitchSerializer(StrictSerializer):
    is_enabled = serializers.BooleanField()


class ProvisionSerializer(StrictSerializer):
    note = serializers.CharField(max_length=1000, allow_blank=True, default="")


class RevisionSerializer(serializers.ModelSerializer[Revision]):
    author = serializers.CharField(source="author.username", allow_null=True, default=None)

    class Meta:
        model = Revision
        fields = ["number", "at", "author", "note"]


class RevisionDetailSerializer(RevisionSerializer):
    class Meta(RevisionSerializer.Meta):
        fields = [*RevisionSerializer.Meta.fields, "document"]


class RestoreSerializer(serializers.Serializer[Any]):
    version = serializers.IntegerField()
    notes = serializers.ListField(child=serializers.CharField())


# --- live configuration ----------------------------------------------------------------------


class _ForAdmins(serializers.ModelSerializer[Any]):
    """Leaves `admins_only` fields out for everybody else."""

    admins_only: tuple[str, ...] = ()

    def get_fields(self) -> dict[str, Any]:
        fields = super().get_fields()
        request = self.context.get("request")
        if request is not None and not is_admin(request.user):
            for name in self.admins_only:
                fields.pop(name, None)
        return fields


class PoolSerializer(_ForAdmins):
    capacity = AmountsField(read_only=True)
    allowed_images = serializers.ListField(child=serializers.CharField(), read_only=True)
    dedicated_to = NameSerializer(read_only=True)
    is_paused = serializers.BooleanField(read_only=True)
    shares = serializers.SerializerMethodField()
    served = serializers.SerializerMethodField()
    current = serializers.SerializerMethodField()
    admins_only = ("dedicated_to",)

    class Meta:
        model = Pool
        fields = [
            "id",
            "key",
            "name",
            "description",
            "capacity",
            "backfill",
            "preemption",
            "allowed_images",
            "dedicated_to",
            "is_paused",
            "pause_reason",
            "shares",
            "served",
            "current",
        ]

    @extend_schema_field(SharesSerializer(allow_null=True))
    def get_shares(self, pool: Pool) -> dict[str, Any] | None:
        """Null for a pool whose nodes have no devices."""
        # Loaded once for all rows of a page, which have one context.
        context: Any = self.context
        if "shares" not in context:
            context["shares"] = enforcement_by_pool()
        found = context["shares"].get(pool.pk)
        return None if found is None else SharesSerializer(found).data

    @extend_schema_field(ServedSerializer())
    def get_served(self, pool: Pool) -> dict[str, Any]:
        """What the nodes of the pool report now."""
        context: Any = self.context
        if "served" not in context:
            rows = getattr(self.parent, "instance", None) or [pool]
            context["served"] = (capacity_by_pool(rows), drifting_since())
        served, since = context["served"]
        found: PoolCapacity = served[pool.pk]
        return ServedSerializer(
            {
                **{name: getattr(found, name) for name in ("nodes", "healthy", "found")},
                **{name: getattr(found, name) for name in ("missing", "occupied")},
                "models": dict(found.models),
                "drift": found.differences,
                "since": since.get(pool.pk),
            }
        ).data

    @extend_schema_field(PoolCurrentSerializer())
    def get_current(self, pool: Pool) -> dict[str, Any]:
        return PoolCurrentSerializer(current_field(self, pool, current_of_pools)).data


class PoolLinkSerializer(serializers.Serializer[Any]):
    pool = NameSerializer()
    name = serializers.CharField()
    routing_rank = serializers.IntegerField()
    execution_rank = serializers.IntegerField()


_CONNECTABLE_FIELDS = frozenset(
    {"id", "key", "name", "request", "replicas", "is_dynamic", "request_min", "request_max"}
)


class ProfileSerializer(_ForAdmins):
    """`links` is for administrators: others do not learn which pools there are.

    A profile that the reader may only connect, and sees no queue of, shows only the request of one
    of its tasks. `volumes` are those that tasks of the reader may mount, for administrators all.
    """

    request = AmountsField(read_only=True)
    request_min = AmountsField(read_only=True)
    request_max = AmountsField(read_only=True)
    device_models = serializers.ListField(child=serializers.CharField(), read_only=True)
    volumes = serializers.SerializerMethodField()
    extra_permissions = serializers.ListField(child=serializers.CharField(), read_only=True)
    links = PoolLinkSerializer(many=True, read_only=True)
    admins_only = ("links",)

    class Meta:
        model = Profile
        fields = [
            "id",
            "key",
            "name",
            "description",
            "request",
            "replicas",
            "is_dynamic",
            "request_min",
            "request_max",
            "device_models",
            "volumes",
            "shm_mb",
            "host_network",
            "read_only_root",
            "allow_streams",
            "extra_permissions",
            "links",
        ]

    def get_volumes(self, profile: Profile) -> list[str]:
        context: Any = self.context
        reader = context["request"].user
        if "mountable" not in context:
            rows = getattr(self.parent, "instance", None) or [profile]
            named = {name for row in rows for name in row.volumes}
            context["mountable"] = (
                named if is_admin(reader) else volumes_mountable_by(reader, named)
            )
        return [name for name in profile.volumes if name in context["mountable"]]

    def to_representation(self, instance: Profile) -> dict[str, Any]:
        payload: dict[str, Any] = super().to_representation(instance)
        used = self.context.get("used")
        if used is not None and instance.pk not in used:
            payload = {
                name: value for name, value in payload.items() if name in _CONNECTABLE_FIELDS
            }
        return payload


QUEUE_SETTINGS = [
    "allow_over_quota",
    "allow_streams",
    "on_preemption",
    "on_node_loss",
    "min_runtime_s",
    "max_preemptions",
    "grace_s",
    "max_priority",
    "max_waiting",
    "idle_warn_minutes",
    "idle_stop_minutes",
]


class QueueSerializer(_ForAdmins):
    """`queuing_rank` is for administrators: it reveals other teams."""

    policy = NameSerializer(read_only=True)
    profile = NameSerializer(read_only=True)
    is_paused = serializers.BooleanField(read_only=True)
    current = serializers.SerializerMethodField()
    admins_only = ("queuing_rank",)

    class Meta:
        model = Queue
        fields = [
            "id",
            "name",
            "policy",
            "profile",
            *QUEUE_SETTINGS,
            "queuing_rank",
            "is_paused",
            "pause_reason",
            "current",
        ]
        read_only_fields = fields

    @extend_schema_field(CurrentSerializer())
    def get_current(self, queue: Queue) -> dict[str, Any]:
        return CurrentSerializer(current_field(self, queue, current_of_queues)).data


class PolicySerializer(_ForAdmins):
    """`parent` is for administrators: a parent's group is another team."""

    group = serializers.CharField(source="group.name", read_only=True)
    parent = NameSerializer(read_only=True)
    reserved = serializers.SerializerMethodField()
    limit = serializers.SerializerMethodField()
    user_limit = AmountsField(read_only=True)
    is_paused = serializers.BooleanField(read_only=True)
    budget_spent = serializers.SerializerMethodField()
    current = serializers.SerializerMethodField()
    admins_only = ("parent",)

    class Meta:
        model = Policy
        fields = [
            "id",
            "name",
            "description",
            "group",
            "parent",
            "reserved",
            "limit",
            "weight",
            "is_strict",
            "user_limit",
            "logs_open_to_group",
            "budget",
            "budget_stops",
            "budget_spent",
            "is_paused",
            "pause_reason",
            "current",
        ]

    @extend_schema_field(serializers.DecimalField(max_digits=24, decimal_places=4, allow_null=True))
    def get_budget_spent(self, policy: Policy) -> str | None:
        """Of this month, with the policies below it; null without a budget."""
        if policy.budget is None:
            return None
        return f"{budget_of(policy, month_of(clock.now())).spent:.4f}"

    def get_reserved(self, policy: Policy) -> dict[str, str]:
        rows = [row for row in policy.amounts.all() if row.pool_id is None]
        return {row.key: row.reserved_text for row in rows if row.reserved_text}

    def get_limit(self, policy: Policy) -> dict[str, str]:
        rows = [row for row in policy.amounts.all() if row.pool_id is None]
        return {row.key: row.limit_text for row in rows if row.limit_text}

    @extend_schema_field(CurrentSerializer())
    def get_current(self, policy: Policy) -> dict[str, Any]:
        return CurrentSerializer(current_field(self, policy, current_of_policies)).data
