"""REST of to whom a policy applies."""

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from apps.accounts.api.permissions import person
from apps.accounts.models import User
from apps.configuration.api.asking import checked
from apps.configuration.api.rule_matching import RULE_ETAG, rule_version
from apps.configuration.api.rule_serializers import NarrowingSerializer, NarrowingToldSerializer
from apps.configuration.rules.narrowed import (
    chosen_told_to,
    narrowing_version,
    people_choosable_by,
    people_chosen,
)
from apps.configuration.services.narrowing import policy_narrow, policy_widen
from apps.core.errors import BadInput, NotAllowed
from apps.policies.models import Policy
from apps.policies.selectors import policies_managed_by, policies_narrowable_by


class NarrowingMixin(GenericViewSet[Policy]):
    """For those who manage the policy."""

    @extend_schema(responses=NarrowingToldSerializer)
    @action(detail=True, methods=["get"], pagination_class=None)
    def narrowing(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """Whether the policy applies to chosen people of its group only, and to whom."""
        policy = self._managed(request)
        chosen = chosen_told_to(person(request), policy)
        names = chosen.values_list("username", flat=True)
        others = people_chosen(policy).count() - len(names)
        told = {"is_narrowed": policy.is_narrowed, "people": sorted(names), "others": others}
        return _told(policy, told)

    @extend_schema(
        request=NarrowingSerializer, parameters=[RULE_ETAG], responses=NarrowingToldSerializer
    )
    @narrowing.mapping.put
    def set_narrowing(self, request: Request, pk: str) -> Response:  # noqa: ARG002  # the route's
        """What those have waiting who lose their right becomes drafts.

        If-Match is required: the change is made to what was read, or to nothing; `*` for any.
        """
        policy = self._managed(request)
        if not policies_narrowable_by(request.user).filter(pk=policy.pk).exists():
            raise NotAllowed("The top of a tenant is for administrators of the installation.")
        actor, version = person(request), rule_version(request, is_required=True)
        body = checked(NarrowingSerializer, request)
        names = sorted(set(body["people"]))
        returned, kept = 0, []
        if body["is_narrowed"]:
            told_of = chosen_told_to(actor, policy)
            # Of whom the actor is not told stays chosen.
            kept = list(people_chosen(policy).exclude(pk__in=told_of.values("pk")))
            people = [*_members(people_choosable_by(actor, policy) | told_of, names), *kept]
            returned = policy_narrow(actor=actor, policy=policy, people=people, version=version)
        elif names:
            problem = "is for a narrowed policy: leave it out"
            raise BadInput(f"people {problem}.", fields={"people": problem})
        else:
            policy_widen(actor=actor, policy=policy, version=version)
        policy.refresh_from_db()
        return _told(
            policy,
            {
                "is_narrowed": policy.is_narrowed,
                "people": names,
                "others": len(kept),
                "tasks_returned": returned,
            },
        )

    def _managed(self, request: Request) -> Policy:
        policy = self.get_object()
        if not policies_managed_by(request.user).filter(pk=policy.pk).exists():
            raise NotAllowed("This is for administrators and those who manage the policy.")
        return policy


def _told(policy: Policy, told: dict[str, object]) -> Response:
    return Response(told, headers={"ETag": f'"{narrowing_version(policy)}"'})


def _members(rows: QuerySet[User], names: list[str]) -> list[User]:
    found = {row.username: row for row in rows.filter(username__in=names)}
    missing = [name for name in names if name not in found]
    if missing:
        problem = f"{missing[0]!r} is not in the group of the policy"
        raise BadInput(f"people: {problem}.", fields={"people": problem})
    return list(found.values())
