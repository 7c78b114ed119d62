"""REST of the members to whom a policy is restricted."""

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from apps.access.selectors import policies_managed_by, policies_restrictable_by
from apps.accounts.api.permissions import person
from apps.accounts.models import User
from apps.configuration.api.request_checks import validated_body
from apps.configuration.api.rule_etag import RULE_ETAG, rule_version
from apps.configuration.api.rule_serializers import (
    RestrictionResponseSerializer,
    RestrictionSerializer,
)
from apps.configuration.restrictions import (
    restrictable_members,
    restricted_members,
    restricted_members_visible_to,
    restriction_version,
)
from apps.configuration.services.restrictions import policy_restrict, policy_unrestrict
from apps.core.errors import BadInput, NotAllowed
from apps.policies.models import Policy


class RestrictionMixin(GenericViewSet[Policy]):
    """For those who manage the policy."""

    @extend_schema(responses=RestrictionResponseSerializer)
    @action(detail=True, methods=["get"], pagination_class=None)
    def restriction(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Whether the policy is restricted to members of its group, and to whom."""
        policy = self._managed_policy(request)
        members = restricted_members_visible_to(person(request), policy)
        names = members.values_list("username", flat=True)
        others = restricted_members(policy).count() - len(names)
        payload = {"is_restricted": policy.is_restricted, "people": sorted(names), "others": others}
        return _response(policy, payload)

    @extend_schema(
        request=RestrictionSerializer,
        parameters=[RULE_ETAG],
        responses=RestrictionResponseSerializer,
    )
    @restriction.mapping.put
    def set_restriction(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Restrict the policy. Waiting tasks of people who lose their permission become drafts.

        If-Match is required: the change applies to the version that was read; `*` for any.
        """
        policy = self._managed_policy(request)
        if not policies_restrictable_by(request.user).filter(pk=policy.pk).exists():
            raise NotAllowed("The top of a tenant is for administrators of the installation.")
        actor, version = person(request), rule_version(request, is_required=True)
        body = validated_body(RestrictionSerializer, request)
        names = sorted(set(body["people"]))
        returned, kept = 0, []
        if body["is_restricted"]:
            visible = restricted_members_visible_to(actor, policy)
            # Members whom the actor may not see stay.
            kept = list(restricted_members(policy).exclude(pk__in=visible.values("pk")))
            people = [*_members(restrictable_members(actor, policy) | visible, names), *kept]
            returned = policy_restrict(actor=actor, policy=policy, people=people, version=version)
        elif names:
            problem = "is for a restricted policy: leave it out"
            raise BadInput(f"people {problem}.", fields={"people": problem})
        else:
            policy_unrestrict(actor=actor, policy=policy, version=version)
        policy.refresh_from_db()
        return _response(
            policy,
            {
                "is_restricted": policy.is_restricted,
                "people": names,
                "others": len(kept),
                "tasks_returned": returned,
            },
        )

    def _managed_policy(self, request: Request) -> Policy:
        policy = self.get_object()
        if not policies_managed_by(request.user).filter(pk=policy.pk).exists():
            raise NotAllowed("This is for administrators and those who manage the policy.")
        return policy


def _response(policy: Policy, payload: dict[str, object]) -> Response:
    return Response(payload, headers={"ETag": f'"{restriction_version(policy)}"'})


def _members(rows: QuerySet[User], names: list[str]) -> list[User]:
    found = {row.username: row for row in rows.filter(username__in=names)}
    missing = [name for name in names if name not in found]
    if missing:
        problem = f"{missing[0]!r} is not in the group of the policy"
        raise BadInput(f"people: {problem}.", fields={"people": problem})
    return list(found.values())
