"""REST of the users and groups that may exceed the limit of a policy."""

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
from apps.configuration.api.request_checks import require_admin, validated_body
from apps.configuration.services.exceeders import policy_set_exceeders
from apps.core.errors import BadInput
from apps.core.serializers import StrictSerializer
from apps.policies.models import Policy
from apps.policies.selectors import limit_exceeders


class ExceedersSerializer(StrictSerializer):
    """Names. Their preemptible tasks skip the policy's own limit and count as over quota."""

    users = serializers.ListField(child=serializers.CharField(max_length=150), max_length=1000)
    groups = serializers.ListField(child=serializers.CharField(max_length=150), max_length=1000)


class ExceedersMixin(GenericViewSet[Policy]):
    """For administrators."""

    @extend_schema(responses=ExceedersSerializer)
    @action(detail=True, methods=["get"], pagination_class=None)
    def exceeders(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """List the users and groups that may exceed the limit of this policy."""
        return _response(_policy(self, request))

    @extend_schema(request=ExceedersSerializer, responses=ExceedersSerializer)
    @exceeders.mapping.put
    def set_exceeders(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Replace who may exceed the limit; this applies to their waiting tasks at once."""
        policy = _policy(self, request)
        body = validated_body(ExceedersSerializer, request)
        policy_set_exceeders(
            actor=person(request),
            policy=policy,
            users=_rows(User.objects.filter(is_active=True), "username", body, "users"),
            groups=_rows(Group.objects.all(), "name", body, "groups"),
        )
        return _response(policy)


def _policy(view: ExceedersMixin, request: Request) -> Policy:
    policy = view.get_object()
    require_admin(request)
    return policy


def _response(policy: Policy) -> Response:
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
