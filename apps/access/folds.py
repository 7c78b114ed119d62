"""What a user may do, who may do it, what they see, and why: all sources of a right together.

A user holds a right by any source, minus tenant isolation. Each function here goes through the same
list, so that they agree; a property test compares them with a model that knows no rows.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from django.db.models import Model, Q, QuerySet

from apps.access.isolation import (
    is_other_tenants,
    isolation_filter,
    tenant_of,
    users_isolated_from_tenants,
)
from apps.access.levels import RuleKind, resource_of
from apps.access.sources import (
    EVERYTHING,
    NOTHING,
    SOURCES,
    ObjectRight,
    PermissionSource,
    SourceKind,
    UserWithGroups,
)
from apps.accounts.models import User
from apps.accounts.selectors import Person
from apps.policies.models import Policy, PolicyMember, Pool, Queue

Row = TypeVar("Row", bound=Model)


def right_filter(model: type[Model], user: Person, verb: str) -> Q:
    """Rows of `model` on which the user holds the right, from any source.

    Args:
        verb: `view`, `enqueue` or `manage`.
    """
    if not isinstance(user, User) or not user.is_active:
        return NOTHING
    right, holder = ObjectRight(resource_of(model), verb), UserWithGroups(user)
    return _from_any_source(
        right,
        lambda kind: kind.rows(right, holder),
        isolation=isolation_filter(right.resource, user),
    )


def rows_with_right(model: type[Row], user: Person, verb: str) -> QuerySet[Row]:
    """The rows of `model`, without removed ones, on which the user holds the right."""
    live = model._default_manager.filter(removed_at__isnull=True)
    return live.filter(right_filter(model, user, verb))


def may(user: Person, verb: str, row: Policy | Pool | Queue) -> bool:
    """Whether the user holds the right on this object, which was not removed."""
    return rows_with_right(type(row), user, verb).filter(pk=row.pk).exists()


def holders(row: Policy | Pool | Queue, verb: str) -> QuerySet[User]:
    """Active people and service accounts who hold the right on this object, from any source."""
    right, tenant = ObjectRight(resource_of(type(row)), verb), tenant_of(row)
    isolated = users_isolated_from_tenants([tenant] if tenant else [])
    found = _from_any_source(
        right, lambda kind: kind.people(right, row), isolation=~Q(pk__in=isolated.values("pk"))
    )
    return User.objects.filter(found, is_active=True)


def permission_sources(user: User, verb: str, row: Any) -> list[PermissionSource]:
    """Every source of the user's right on this object, then what denies it."""
    if not user.is_active:
        return [PermissionSource("deactivated", is_denial=True)]
    right, holder = ObjectRight(resource_of(type(row)), verb), UserWithGroups(user)
    across, inside = _by_isolation(right)
    found = [one for kind in across for one in kind.reasons(right, row, holder)]
    if inside and not found and is_other_tenants(user, row):
        return [PermissionSource("other_tenant", is_denial=True)]
    found += [one for kind in inside for one in kind.reasons(right, row, holder)]
    found += _restrictions(right, row, holder)
    return found or [PermissionSource("nothing", is_denial=True)]


def _from_any_source(
    right: ObjectRight, filter_of: Callable[[SourceKind], Q], *, isolation: Q
) -> Q:
    across, inside = _by_isolation(right)

    def parts() -> Iterator[Q]:
        yield _any(map(filter_of, across))
        found = _any(map(filter_of, inside))
        yield found & isolation if found is not NOTHING else NOTHING

    return _any(parts())


def _by_isolation(right: ObjectRight) -> tuple[list[SourceKind], list[SourceKind]]:
    """The kinds of sources that can give the right: those that cross tenants, and the others."""
    kinds = [kind for kind in SOURCES if kind.gives(right)]
    return (
        [kind for kind in kinds if kind.crosses_tenants(right)],
        [kind for kind in kinds if not kind.crosses_tenants(right)],
    )


def _any(filters: Iterable[Q]) -> Q:
    """What at least one of them finds. The first that finds everything ends it.

    Django reads an empty Q as everything in a filter, but as nothing in a union.
    """
    found = NOTHING
    for one in filters:
        if not one:
            return EVERYTHING
        # Empty lists cost Django time in every query.
        if one is not NOTHING:
            found = one if found is NOTHING else found | one
    return found


def _restrictions(
    right: ObjectRight, row: Any, holder: UserWithGroups
) -> Iterator[PermissionSource]:
    """The user is in the policy's group, and the policy is restricted to others."""
    policy = row.policy if isinstance(row, Queue) else row
    if right.verb not in {"view", "enqueue"} or not isinstance(policy, Policy):
        return
    if not policy.is_restricted or policy.group_id not in holder.groups:
        return
    if not PolicyMember.objects.filter(policy=policy, user=holder.user).exists():
        on = (RuleKind.POLICY.value, policy.name)
        yield PermissionSource("policy_restricted", on, group=policy.group.name, is_denial=True)
