"""REST of tenants, for administrators of the installation."""

from typing import Any

from django.contrib.auth.models import Group
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from apps.access.selectors import policies_visible_to
from apps.accounts.api.permissions import IsAdmin, person
from apps.accounts.models import Tenant
from apps.accounts.selectors import tenants_visible_to
from apps.configuration.api.request_checks import validated_body
from apps.configuration.services.tenants import tenant_change, tenant_create, tenant_remove
from apps.configuration.tenants import tenant_facts
from apps.core.api import KeysetPagination
from apps.core.errors import BadInput
from apps.core.serializers import NameSerializer, StrictSerializer
from apps.policies.selectors import by_name_or_id

_NAME = 150
MOST_GROUPS = 500


class TenantSerializer(serializers.Serializer[Any]):
    """`name` is that of its top; `groups` are all that belong to it, including `admin_group`."""

    id = serializers.IntegerField(source="tenant.pk")
    name = serializers.CharField()
    top = NameSerializer(allow_null=True)
    admin_group = serializers.CharField(source="tenant.admin_group.name")
    groups = NameSerializer(many=True)
    policies = serializers.IntegerField()
    people = serializers.IntegerField()


class TenantChangeSerializer(StrictSerializer):
    """Names of groups; `groups` replaces those that belong to it."""

    admin_group = serializers.CharField(max_length=_NAME)
    groups = serializers.ListField(
        child=serializers.CharField(max_length=_NAME), max_length=MOST_GROUPS
    )


class TenantCreateSerializer(TenantChangeSerializer):
    """`top` is the name or id of a policy without a parent."""

    top = serializers.CharField(max_length=_NAME)
    groups = serializers.ListField(
        child=serializers.CharField(max_length=_NAME), max_length=MOST_GROUPS, default=list
    )


class _ById(KeysetPagination):
    ordering = "id"


class TenantViewSet(GenericViewSet[Tenant]):
    """Organisations that share the installation and see nothing of one another."""

    permission_classes = (IsAuthenticated, IsAdmin)
    serializer_class = TenantSerializer
    pagination_class = _ById
    filter_backends = []
    queryset = Tenant.objects.none()
    lookup_value_regex = "[0-9]{1,18}"

    def get_queryset(self) -> QuerySet[Tenant]:
        return tenants_visible_to(self.request.user)

    def list(self, request: Request) -> Response:  # noqa: ARG002  # the route's
        """List all tenants."""
        page: Any = self.paginate_queryset(self.get_queryset()) or []
        facts = sorted(tenant_facts(page), key=lambda one: one.tenant.pk)
        return self.get_paginated_response(TenantSerializer(facts, many=True).data)

    def retrieve(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Show a tenant with its groups."""
        return _response(self.get_object())

    @extend_schema(request=TenantCreateSerializer, responses={201: TenantSerializer})
    def create(self, request: Request) -> Response:
        """Create a tenant of a policy and all policies below it."""
        body = validated_body(TenantCreateSerializer, request)
        top = by_name_or_id(policies_visible_to(request.user), body["top"])
        if top is None:
            raise _unknown("top", body["top"])
        tenant = tenant_create(
            actor=person(request),
            top=top,
            admin_group=_group(body["admin_group"]),
            groups=_groups(body["groups"]),
        )
        return _response(tenant, status=201)

    @extend_schema(request=TenantChangeSerializer, responses=TenantSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Change its administrators' group, or which groups belong to it."""
        tenant = self.get_object()
        body = validated_body(TenantChangeSerializer, request, is_partial=True)
        values: dict[str, Any] = {}
        if "admin_group" in body:
            values["admin_group"] = _group(body["admin_group"])
        if "groups" in body:
            values["groups"] = _groups(body["groups"])
        return _response(tenant_change(actor=person(request), tenant=tenant, **values))

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Remove the tenant: its policies stay as ordinary ones, its groups and people stay."""
        tenant_remove(actor=person(request), tenant=self.get_object())
        return Response(status=204)


def _response(tenant: Tenant, *, status: int = 200) -> Response:
    return Response(TenantSerializer(tenant_facts([tenant])[0]).data, status=status)


def _group(name: str) -> Group:
    found = Group.objects.filter(name=name).first()
    if found is None:
        raise _unknown("admin_group", name)
    return found


def _groups(names: list[str]) -> list[Group]:
    found = {group.name: group for group in Group.objects.filter(name__in=names)}
    missing = [name for name in names if name not in found]
    if missing:
        raise _unknown("groups", missing[0])
    return list(found.values())


def _unknown(field: str, given: str) -> BadInput:
    return BadInput(f"There is no {given!r}.", fields={field: f"{given!r} is not known"})
