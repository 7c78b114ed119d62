"""What a user may do, who may do it, what they see, and why: all sources of a permission together.

A user holds a permission by any source, minus tenant isolation. Each function here goes through
the same list, so that they agree; a property test compares them with a model that knows no rows.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

from django.db.models import Model, Q, QuerySet, Value

from apps.access.filters import ALL_ROWS, NO_ROWS, all_of, any_of, column_of
from apps.access.isolation import (
    is_other_tenants,
    isolation_filter,
    users_isolated_from_object,
)
from apps.access.levels import EXCEED, RuleKind, resource_of
from apps.access.source_kind import (
    ObjectPermission,
    PermissionHolder,
    PermissionSource,
    SourceKind,
)
from apps.access.sources import SOURCES
from apps.accounts.models import User
from apps.accounts.selectors import Person
from apps.policies.models import PolicyMember

Row = TypeVar("Row", bound=Model)


def permission_filter(model: type[Model], user: Person, verb: str) -> Q:
    """Rows of `model` on which the user holds the permission, from any source.

    Args:
        verb: as in `ObjectPermission`.
    """
    if not isinstance(user, User) or not user.is_active:
        return NO_ROWS
    return filter_held(model, PermissionHolder(user), verb)


def rows_with_permission(model: type[Row], user: Person, verb: str, **others: str) -> QuerySet[Row]:
    """The rows of `model`, without removed ones, on which the user holds the permission.

    Args:
        others: by name of an annotation, a further permission that it says the user holds.
    """
    if not isinstance(user, User) or not user.is_active:
        none: QuerySet[Row] = model._default_manager.none().annotate(
            **dict.fromkeys(others, Value(value=False))
        )
        return none
    resource, holder = resource_of(model), PermissionHolder(user)
    columns = {
        name: column_of(_filter_of(ObjectPermission(resource, other), holder))
        for name, other in others.items()
    }
    rows: QuerySet[Row] = rows_held(model, holder, verb).annotate(**columns)
    return rows


def rows_held(model: type[Row], holder: PermissionHolder, verb: str) -> QuerySet[Row]:
    """The same for an active user whose groups may be known already."""
    return _live(model).filter(filter_held(model, holder, verb))


def filter_held(model: type[Model], holder: PermissionHolder, verb: str) -> Q:
    """As `permission_filter`, for such a user."""
    return _filter_of(ObjectPermission(resource_of(model), verb), holder)


def may(user: Person, verb: str, row: Model) -> bool:
    """Whether the user holds the permission on this object, which was not removed."""
    return rows_with_permission(type(row), user, verb).filter(pk=row.pk).exists()


def verbs_held(user: Person, row: Model, verbs: Collection[str]) -> frozenset[str]:
    """Those of the permissions that the user holds on this object, in one statement at most."""
    if not isinstance(user, User) or not user.is_active:
        return frozenset()
    resource, holder = resource_of(type(row)), PermissionHolder(user)
    held, asked = set(), {}
    for verb in verbs:
        permission = ObjectPermission(resource, verb)
        across, _ = _by_isolation(permission)
        given = (
            ALL_ROWS
            if any(kind.is_evident(permission, row, holder) for kind in across)
            else _filter_of(permission, holder)
        )
        if not given:
            held.add(verb)
        elif given is not NO_ROWS:
            asked[verb] = column_of(given)
    if asked:
        answers = _live(type(row)).filter(pk=row.pk).values_list(*asked.values()).first()
        held |= {verb for verb, is_held in zip(asked, answers or (), strict=False) if is_held}
    return frozenset(held)


def holders(row: Model, verb: str) -> QuerySet[User]:
    """Active people and service accounts who hold the permission on this object."""
    permission = ObjectPermission(resource_of(type(row)), verb)
    found = _from_any_source(
        permission,
        lambda kind: kind.people(permission, row),
        isolation=~Q(pk__in=users_isolated_from_object(row).values("pk")),
    )
    return User.objects.filter(found, is_active=True)


def permission_sources(user: User, verb: str, row: Any) -> list[PermissionSource]:
    """Every source of the user's permission on this object, then what denies it."""
    if not user.is_active:
        return [PermissionSource("deactivated", is_denial=True)]
    permission, holder = ObjectPermission(resource_of(type(row)), verb), PermissionHolder(user)
    across, inside = _by_isolation(permission)
    found = [one for kind in across for one in kind.reasons(permission, row, holder)]
    is_isolated = is_other_tenants(user, row)
    # Exceeding a limit crosses tenants.
    if not found and verb != EXCEED and is_isolated:
        return [PermissionSource("other_tenant", is_denial=True)]
    if not is_isolated:
        found += [one for kind in inside for one in kind.reasons(permission, row, holder)]
    found += _restrictions(permission, row, holder)
    return list(dict.fromkeys(found)) or [PermissionSource("nothing", is_denial=True)]


def _live(model: type[Row]) -> QuerySet[Row]:
    return model._default_manager.filter(resource_of(model).live)


def _filter_of(permission: ObjectPermission, holder: PermissionHolder) -> Q:
    return _from_any_source(
        permission,
        lambda kind: kind.rows(permission, holder),
        isolation=isolation_filter(permission.resource, holder.user),
    )


def _from_any_source(
    permission: ObjectPermission, filter_of: Callable[[SourceKind], Q], *, isolation: Q
) -> Q:
    across, inside = _by_isolation(permission)

    def parts() -> Iterator[Q]:
        yield from map(filter_of, across)
        yield all_of(any_of(map(filter_of, inside)), isolation)

    return any_of(parts())


def _by_isolation(permission: ObjectPermission) -> tuple[list[SourceKind], list[SourceKind]]:
    """The kinds of sources that can give it: those that cross tenants, and the others."""
    kinds = [kind for kind in SOURCES if kind.gives(permission)]
    return (
        [kind for kind in kinds if kind.crosses_tenants(permission)],
        [kind for kind in kinds if not kind.crosses_tenants(permission)],
    )


def _restrictions(
    permission: ObjectPermission, row: Any, holder: PermissionHolder
) -> Iterator[PermissionSource]:
    """The user is in the policy's group, and the policy is restricted to others."""
    policy = permission.resource.policy_of(row)
    if permission.verb not in {"view", "enqueue"} or policy is None:
        return
    if not policy.is_restricted or policy.group_id not in holder.groups:
        return
    if not PolicyMember.objects.filter(policy=policy, user=holder.user).exists():
        on = (RuleKind.POLICY.value, policy.name)
        yield PermissionSource("policy_restricted", on, group=policy.group.name, is_denial=True)
