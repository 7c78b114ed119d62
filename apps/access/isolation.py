"""Tenant isolation: nobody sees what belongs to another tenant.

A policy names its tenant, so that no query has to climb the tree.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from django.contrib.auth.models import Group
from django.db.models import Model, Q, QuerySet

from apps.access.filters import ALL_ROWS
from apps.access.levels import RESOURCES, Resource, resource_of
from apps.access.rules.rule import Rule, Subject, Target
from apps.accounts.models import TenantGroup, User
from apps.accounts.selectors import Person, is_admin, tenants_of
from apps.policies.models import Policy

Row = TypeVar("Row", bound=Model)


def isolation_filter(resource: Resource, user: Person) -> Q:
    """Objects that are in no other tenant's tree than the user's, and not owned from there.

    A user of no tenant sees what rules give them, as everywhere.
    """
    path, tenants = resource.tenant_path, tenants_of(user)
    if not path or not tenants:
        return ALL_ROWS
    inside = Q(**{f"{path}__in": tenants}) | Q(**{f"{path}__isnull": True})
    if resource.is_isolated_by_owner:
        inside &= ~Q(owner__in=users_isolated_from_tenants(tenants).values("pk"))
    return inside


def tenant_of(row: Any) -> int | None:
    """The tenant in whose tree an object is; None for what no tenant has."""
    *steps, _ = resource_of(type(row)).tenant_path.split("__")
    for step in steps:
        row = getattr(row, step, None)
    return getattr(row, "tenant_id", None)


def is_other_tenants(user: Person, row: Any) -> bool:
    """Whether `isolation_filter` leaves out this object."""
    tenants, own = _isolating_tenants(row), tenants_of(user)
    return bool(tenants and own) and tenants.isdisjoint(own)


def users_isolated_from_object(row: Any) -> QuerySet[User]:
    """People for whom `isolation_filter` leaves out this object."""
    return users_isolated_from_tenants(_isolating_tenants(row))


def other_tenants_policy_ids(user: Person) -> frozenset[int]:
    """Ids of policies whose tasks the reader must not see: those of other tenants and, for a
    reader who belongs to one, of none. Empty for administrators, and where there are no tenants.
    """
    if is_admin(user):
        return frozenset()
    tenants = tenants_of(user)
    outside = Q(tenant__isnull=False)
    if tenants:
        outside = ~Q(tenant__in=tenants) | Q(tenant__isnull=True)
    return frozenset(Policy.objects.filter(outside).order_by().values_list("pk", flat=True))


def users_isolated_from_tenants(tenant_ids: Collection[int]) -> QuerySet[User]:
    """People whom tenant isolation keeps from what belongs to these tenants: those of others alone.

    Nobody where it belongs to no tenant.
    """
    if not tenant_ids:
        return User.objects.none()
    own = User.objects.filter(groups__belongs__tenant__in=tenant_ids)
    return User.objects.filter(groups__belongs__isnull=False).exclude(pk__in=own.values("pk"))


def users_isolated_from(reader: User) -> QuerySet[User]:
    """People and service accounts of other tenants; for a user of no tenant, nobody."""
    return (
        User.objects.none() if is_admin(reader) else users_isolated_from_tenants(tenants_of(reader))
    )


def without_other_tenants(reader: User, rows: Iterable[Row], by: str) -> list[Row]:
    """The rows, with `by` emptied where it is another tenant's user; never save them."""
    found = list(rows)
    people = {getattr(row, f"{by}_id") for row in found}
    hidden = set(users_isolated_from(reader).filter(pk__in=people).values_list("pk", flat=True))
    for row in found:
        if getattr(row, f"{by}_id") in hidden:
            setattr(row, by, None)
    return found


def other_tenants_subject(target: Target, users: Iterable[User], groups: Iterable[Group]) -> str:
    """The name of a subject of another tenant than the target's; empty if there is none."""
    tenant = _tenant_of_target(target)
    if tenant is None:
        return ""
    outsiders = users_isolated_from_tenants([tenant]).filter(pk__in=[one.pk for one in users])
    others = TenantGroup.objects.filter(group__in=[one.pk for one in groups])
    others = others.exclude(tenant=tenant).select_related("group")
    names = [one.username for one in outsiders[:1]] + [one.group.name for one in others[:1]]
    return names[0] if names else ""


def subject_across_tenants(target: Target, users: Iterable[User], groups: Iterable[Group]) -> str:
    """The name of a subject that is not as the target is: of its tenant, or of none.

    A group of a tenant may be named on a target of none. Empty if there is no such subject.
    """
    tenant = _tenant_of_target(target)
    if tenant is None:
        bound = User.objects.filter(groups__belongs__isnull=False)
        return next((one.username for one in bound.filter(pk__in=[u.pk for u in users])), "")
    inside = User.objects.filter(groups__belongs__tenant=tenant)
    people = User.objects.filter(pk__in=[one.pk for one in users]).exclude(pk__in=inside)
    own = TenantGroup.objects.filter(tenant=tenant).values("group")
    teams = Group.objects.filter(pk__in=[one.pk for one in groups]).exclude(pk__in=own)
    names = [one.username for one in people[:1]] + [one.name for one in teams[:1]]
    return names[0] if names else ""


def rules_without_other_tenants(reader: User, rules: Iterable[Rule]) -> list[Rule]:
    """The rules without names of other tenants than the reader's, in two queries.

    A user may join another tenant after a rule was made; it gives them nothing since.
    """
    known = list(rules)
    named = [one for rule in known for one in (*rule.subjects, *rule.made_by)]
    hidden = subjects_hidden_from(reader, named)
    if not hidden:
        return known
    return [
        replace(
            rule,
            subjects=tuple(one for one in rule.subjects if one not in hidden),
            hidden=tuple(one for one in rule.subjects if one in hidden),
            made_by=tuple(one for one in rule.made_by if one not in hidden),
        )
        for rule in known
    ]


def subjects_hidden_from(reader: User, subjects: Iterable[Subject]) -> frozenset[Subject]:
    """Those of other tenants than the reader's; a reader of no tenant sees all."""
    every, tenants = set(subjects), tenants_of(reader)
    if is_admin(reader) or not tenants or not every:
        return frozenset()
    groups = [one.id for one in every if one.is_group]
    users = [one.id for one in every if not one.is_group]
    others = TenantGroup.objects.filter(group__in=groups).exclude(tenant__in=tenants)
    hidden = {(True, pk) for pk in others.values_list("group", flat=True)}
    outsiders = users_isolated_from(reader).filter(pk__in=users)
    hidden |= {(False, pk) for pk in outsiders.values_list("pk", flat=True)}
    return frozenset(one for one in every if (one.is_group, one.id) in hidden)


def _isolating_tenants(row: Any) -> frozenset[int]:
    """The tenant of an object; where it is isolated by its owner, those of the owner."""
    tenant = tenant_of(row)
    if tenant is not None:
        return frozenset([tenant])
    if not resource_of(type(row)).is_isolated_by_owner or row.owner_id is None:
        return frozenset()
    groups = TenantGroup.objects.filter(group__user=row.owner_id)
    return frozenset(groups.values_list("tenant", flat=True))


def _tenant_of_target(target: Target) -> int | None:
    resource = RESOURCES[target.kind]
    if not target.object_id or not resource.tenant_path:
        return None
    rows = resource.model._default_manager.filter(pk=target.object_id)
    tenant: int | None = rows.values_list(resource.tenant_path, flat=True).first()
    return tenant
