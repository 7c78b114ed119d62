"""REST of who may exceed the limit of a policy."""

from typing import Any

from django.contrib.auth.models import Group
from django.db.models import Model, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from apps.accounts.api.permissions import person
from apps.accounts.models import User
from apps.configuration.api.asking import admins_only, checked
from apps.configuration.services.exceeding import policy_set_exceeding
from apps.core.errors import BadInput
from apps.core.serializers import StrictSerializer
from apps.policies.models import Policy
from apps.policies.selectors import limit_exceeders


class ExceedingSerializer(StrictSerializer):
    """Names. Their preemptible tasks skip the policy's own limit and stand as over quota."""

    users = serializers.ListField(child=serializers.CharField(max_length=150), max_length=1000)
    groups = serializers.ListField(child=serializers.CharField(max_length=150), max_length=1000)


class ExceedingMixin(GenericViewSet[Policy]):
    """For administrators."""

    @extend_schema(responses=ExceedingSerializer)
    @action(detail=True, methods=["get"], pagination_class=None)
    def exceeding(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Who may exceed the limit of this policy."""
        return _told(_policy(self, request))

    @extend_schema(request=ExceedingSerializer, responses=ExceedingSerializer)
    @exceeding.mapping.put
    def set_exceeding(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Exactly these may, from now on; it holds for their waiting tasks at once."""
        policy = _policy(self, request)
        body = checked(ExceedingSerializer, request)
        policy_set_exceeding(
            actor=person(request),
            policy=policy,
            users=_rows(User.objects.filter(is_active=True), "username", body, "users"),
            groups=_rows(Group.objects.all(), "name", body, "groups"),
        )
        return _told(policy)


def _policy(view: ExceedingMixin, request: Request) -> Policy:
    policy = view.get_object()
    admins_only(request)
    return policy


def _told(policy: Policy) -> Response:
    users, groups = limit_exceeders(policy)
    return Response(
        {
            "users": sorted(users.values_list("username", flat=True)),
            "groups": sorted(groups.values_list("name", flat=True)),
        }
    )


def _rows(every: QuerySet[Any], column: str, body: dict[str, Any], field: str) -> list[Any]:
    wanted = set(body[field])
    rows: list[Model] = list(every.filter(**{f"{column}__in": wanted}))
    missing = sorted(wanted - {getattr(row, column) for row in rows})
    if missing:
        problem = f"{missing[0]!r} is not known"
        raise BadInput(f"There is no {missing[0]!r}.", fields={field: problem})
    return rows
