"""Bodies of access rules."""

from typing import Any

from drf_spectacular.utils import extend_schema_field, extend_schema_serializer
from rest_framework import serializers

from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import Rule
from apps.access.rules.sentences import source_sentence
from apps.accounts.models.grants import GrantSource
from apps.configuration.access_explanation import ObjectKind, PermissionName
from apps.core.serializers import StrictSerializer

MOST_NAMES = 2000
_SUBJECTS = [("user", "user"), ("service_account", "service account"), ("group", "group")]


class RuleSubjectSerializer(serializers.Serializer[Any]):
    """A subject of a rule."""

    kind = serializers.ChoiceField(_SUBJECTS)
    id = serializers.IntegerField()
    name = serializers.CharField()


class RuleSerializer(serializers.Serializer[Rule]):
    """A rule on an object, or on every object of a kind, with its subjects."""

    id = serializers.CharField(source="key")
    kind = serializers.ChoiceField(RuleKind.choices, source="target.kind")
    object = serializers.SerializerMethodField(help_text="Id; null: every object of the kind.")
    object_name = serializers.CharField(source="target.name")
    level = serializers.ChoiceField(Level.choices)
    source = serializers.ChoiceField(  # type: ignore[assignment]  # DRF's own has that name, too
        GrantSource.values,
        help_text="policy: its policy makes it.",
    )
    is_restricted = serializers.BooleanField(
        help_text="The policy applies to some members of its group only."
    )
    subjects = RuleSubjectSerializer(many=True)
    others = serializers.SerializerMethodField(
        help_text="How many more it names, of other tenants."
    )
    made_by = serializers.ListField(child=serializers.CharField(), source="makers")
    made_at = serializers.DateTimeField(allow_null=True)
    version = serializers.CharField(help_text="The ETag of this rule.")

    @extend_schema_field(serializers.IntegerField())
    def get_others(self, rule: Rule) -> int:
        return len(rule.hidden)

    @extend_schema_field(serializers.CharField(allow_null=True))
    def get_object(self, rule: Rule) -> str | None:
        return rule.target.object_id or None


@extend_schema_serializer(many=False)
class RulePageSerializer(serializers.Serializer[Any]):
    """A page of rules."""

    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = RuleSerializer(many=True)


class RuleCreateSerializer(StrictSerializer):
    kind = serializers.ChoiceField(RuleKind.choices)
    object = serializers.CharField(
        max_length=36, allow_null=True, default=None, help_text="Id; null: every object."
    )
    level = serializers.ChoiceField(Level.choices)
    users = serializers.ListField(
        child=serializers.CharField(max_length=150),
        max_length=MOST_NAMES,
        default=list,
        help_text="User names of people and service accounts.",
    )
    groups = serializers.ListField(
        child=serializers.CharField(max_length=150),
        max_length=MOST_NAMES,
        default=list,
        help_text="Names.",
    )


class RuleChangeSerializer(StrictSerializer):
    level = serializers.ChoiceField(Level.choices)
    users = serializers.ListField(
        child=serializers.CharField(max_length=150), max_length=MOST_NAMES
    )
    groups = serializers.ListField(
        child=serializers.CharField(max_length=150), max_length=MOST_NAMES
    )


class RestrictionSerializer(StrictSerializer):
    """To whom a policy applies: its whole group, or these members of it only."""

    is_restricted = serializers.BooleanField()
    people = serializers.ListField(
        child=serializers.CharField(max_length=150),
        max_length=MOST_NAMES,
        default=list,
        help_text="User names of members of the group, people or service accounts.",
    )


class RestrictionResponseSerializer(serializers.Serializer[Any]):
    is_restricted = serializers.BooleanField()
    people = serializers.ListField(child=serializers.CharField())
    others = serializers.IntegerField(help_text="How many more it applies to, of other tenants.")
    tasks_returned = serializers.IntegerField(
        required=False, help_text="Waiting tasks that became drafts by this change."
    )


class PermissionSourceSerializer(serializers.Serializer[Any]):
    """A source of a permission, or with `is_denial` what denies it."""

    code = serializers.CharField()
    text = serializers.SerializerMethodField()
    is_denial = serializers.BooleanField()

    @extend_schema_field(serializers.CharField())
    def get_text(self, reason: Any) -> str:
        return source_sentence(reason)


class PermissionAnswerSerializer(serializers.Serializer[Any]):
    permission = serializers.ChoiceField(PermissionName.choices)
    is_held = serializers.BooleanField()
    reasons = PermissionSourceSerializer(many=True)


class AccessObjectSerializer(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(ObjectKind.choices, source="thing")
    id = serializers.CharField(source="object_id")
    name = serializers.CharField()


class AccessExplanationSerializer(serializers.Serializer[Any]):
    """The permissions of one person on one object."""

    user = serializers.CharField(source="person.username")
    object = AccessObjectSerializer(source="*")
    permissions = PermissionAnswerSerializer(many=True, source="answers")
