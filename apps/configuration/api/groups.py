"""REST of groups, for administrators and those of tenants: their members and what uses them."""

from typing import Any

from django.contrib.auth.models import Group
from django.db.models import Count, QuerySet
from django_filters.rest_framework import CharFilter, FilterSet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ReadOnlyModelViewSet

from apps.accounts.api.permissions import IsPeopleAdmin, person
from apps.accounts.models import User
from apps.accounts.selectors import accounts_visible_to, groups_visible_to, with_last_active
from apps.accounts.services.groups import (
    group_members_add,
    group_members_remove,
    group_remove,
    group_save,
)
from apps.configuration.api.request_checks import validated_body
from apps.configuration.group_usage import GroupCounts, group_counts, group_usage
from apps.core.api import KeysetPagination
from apps.core.errors import BadInput
from apps.core.serializers import NameSerializer, StrictSerializer

MOST_MEMBERS = 1000


class GroupSerializer(serializers.ModelSerializer[Group]):
    """`policies` and `rules` count what names the group; rules are those that people made."""

    description = serializers.CharField(source="info.description", default="", read_only=True)
    is_built_in = serializers.BooleanField(source="info.is_built_in", default=False, read_only=True)
    members = serializers.IntegerField(source="member_count", read_only=True)
    policies = serializers.SerializerMethodField()
    rules = serializers.SerializerMethodField()

    class Meta:
        model = Group
        fields = ["id", "name", "description", "is_built_in", "members", "policies", "rules"]
        read_only_fields = fields

    @extend_schema_field(serializers.IntegerField())
    def get_policies(self, group: Group) -> int:
        return self._counts(group).policies

    @extend_schema_field(serializers.IntegerField())
    def get_rules(self, group: Group) -> int:
        return self._counts(group).rules

    def _counts(self, group: Group) -> GroupCounts:
        """Those of the whole page at once."""
        context: Any = self.context
        reader = person(context["request"])
        if "counts" not in context:
            shown = getattr(self.parent, "instance", None)
            rows = shown if isinstance(shown, list) else [group]
            context["counts"] = group_counts((row.pk for row in rows), reader=reader)
        found: GroupCounts = (
            context["counts"].get(group.pk) or group_counts([group.pk], reader=reader)[group.pk]
        )
        return found


class GroupChangeSerializer(StrictSerializer):
    name = serializers.CharField(max_length=150)
    description = serializers.CharField(max_length=1000, allow_blank=True, default="")


class GroupMembersSerializer(StrictSerializer):
    """User names, or ids as text."""

    users = serializers.ListField(
        child=serializers.CharField(max_length=150), min_length=1, max_length=MOST_MEMBERS
    )


class GroupMemberSerializer(serializers.ModelSerializer[User]):
    status = serializers.CharField(read_only=True)

    class Meta:
        model = User
        fields = ["id", "username", "first_name", "last_name", "email", "status", "is_service"]
        read_only_fields = fields


class GroupRuleSerializer(serializers.Serializer[Any]):
    """`by_policy`: the policy gives it by itself; its own list of queues says more."""

    kind = serializers.CharField()
    object_id = serializers.CharField(help_text="Empty: every object of the kind.")
    name = serializers.CharField()
    permissions = serializers.ListField(child=serializers.CharField())
    by_policy = serializers.BooleanField()


class _VaultNameSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()


class GroupLogInSerializer(serializers.Serializer[Any]):
    """How log-ins use the group: whether its members need a second factor, and which identity
    providers add people to it.
    """

    asks_second_factor = serializers.BooleanField()
    providers = serializers.ListField(child=serializers.CharField())


class GroupUsageSerializer(serializers.Serializer[Any]):
    """`policies` and `vaults` (and removed ones) keep the group from being removed; `rules` go with
    it, and so does `log_in`, which only administrators of the installation remove.
    """

    policies = NameSerializer(many=True)
    removed = NameSerializer(many=True)
    vaults = _VaultNameSerializer(many=True)
    removed_vaults = _VaultNameSerializer(many=True)
    rules = GroupRuleSerializer(many=True)
    log_in = GroupLogInSerializer()


class _ByName(KeysetPagination):
    ordering = ("name", "id")  # type: ignore[assignment]  # DRF takes tuples too


class _ByUsername(KeysetPagination):
    ordering = "username"


class _GroupFilter(FilterSet):  # type: ignore[misc]  # comes without types
    name = CharFilter(lookup_expr="icontains", help_text="A part of the name.")


class GroupViewSet(ReadOnlyModelViewSet[Group]):
    """Groups; all permissions follow from them."""

    permission_classes = (IsAuthenticated, IsPeopleAdmin)
    serializer_class = GroupSerializer
    pagination_class = _ByName
    queryset = Group.objects.none()
    lookup_value_regex = "[0-9]{1,18}"
    filterset_class = _GroupFilter

    def get_queryset(self) -> QuerySet[Group]:
        visible = groups_visible_to(self.request.user).select_related("info")
        return visible.annotate(member_count=Count("user"))

    @extend_schema(request=GroupChangeSerializer, responses={201: GroupSerializer})
    def create(self, request: Request) -> Response:
        """Create a group without members."""
        body = validated_body(GroupChangeSerializer, request)
        group = group_save(
            actor=person(request),
            group=Group(name=body["name"]),
            description=body["description"],
        )
        return self._answer(group, status=201)

    @extend_schema(request=GroupChangeSerializer, responses=GroupSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Change the name or description; a built-in group keeps its name."""
        group = self.get_object()
        body = validated_body(GroupChangeSerializer, request, is_partial=True)
        info = getattr(group, "info", None)
        known = info.description if info is not None else ""
        group.name = body.get("name", group.name)
        group_save(actor=person(request), group=group, description=body.get("description", known))
        return self._answer(group)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Delete the group with its permissions (`used-by`). 409 if it cannot be deleted."""
        group_remove(actor=person(request), group=self.get_object())
        return Response(status=204)

    @extend_schema(responses=GroupUsageSerializer, filters=False)
    @action(detail=True, methods=["get"], pagination_class=None, url_path="used-by")
    def used_by(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """What uses the group: its policies, and the permissions that were given to it."""
        return Response(
            GroupUsageSerializer(group_usage(self.get_object(), reader=person(request))).data
        )

    @extend_schema(responses=GroupMemberSerializer(many=True), filters=False)
    @action(detail=True, methods=["get"], pagination_class=_ByUsername, filterset_class=None)
    def members(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """List its members, service accounts included."""
        rows = with_last_active(User.objects.filter(groups=self.get_object()))
        page: list[Any] = self.paginate_queryset(rows) or []  # type: ignore[arg-type]  # of people
        return self.get_paginated_response(GroupMemberSerializer(page, many=True).data)

    @extend_schema(request=GroupMembersSerializer, responses=GroupSerializer)
    @members.mapping.post
    def members_add(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Add these people; this applies from their next request on."""
        users = _users(person(request), validated_body(GroupMembersSerializer, request)["users"])
        group = self.get_object()
        group_members_add(actor=person(request), group=group, users=users)
        return self._answer(group)

    @extend_schema(request=GroupMembersSerializer, responses=GroupSerializer)
    @action(detail=True, methods=["post"], url_path="members/remove")
    def members_remove(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Remove these people; their tasks stay where they are."""
        users = _users(person(request), validated_body(GroupMembersSerializer, request)["users"])
        group = self.get_object()
        group_members_remove(actor=person(request), group=group, users=users)
        return self._answer(group)

    def _answer(self, group: Group, *, status: int = 200) -> Response:
        row = self.get_queryset().get(pk=group.pk)
        return Response(self.get_serializer(row).data, status=status)


def _users(actor: User, names: list[str]) -> list[User]:
    """The people of these names or ids; the name comes first, since it may consist of digits."""
    visible = accounts_visible_to(actor)
    found = {user.username: user for user in visible.filter(username__in=names)}
    ids = [name for name in names if name not in found and name.isascii() and name.isdigit()]
    short = [int(name) for name in ids if len(name) < 19]
    found |= {str(user.pk): user for user in visible.filter(pk__in=short)}
    missing = [name for name in names if name not in found]
    if missing:
        words = f"{missing[0]!r} is not known"
        raise BadInput(f"users: {words}.", fields={"users": words})
    return list({user.pk: user for user in found.values()}.values())
