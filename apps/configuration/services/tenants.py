"""Creates tenants of policy trees, changes what belongs to them, and removes them."""

from collections.abc import Iterable
from typing import Any

from django.contrib.auth.models import Group
from django.db import transaction

from apps.accounts.models import BUILT_IN_GROUPS, Tenant, TenantGroup, User
from apps.accounts.services.groups import permissions_change_notify
from apps.accounts.services.tenancy import one_tenant_check
from apps.configuration.services.change_records import live_change_notify
from apps.configuration.services.isolation import tenant_change_notify
from apps.configuration.services.rows import live_lock
from apps.core.errors import BadInput
from apps.events.services import event_record
from apps.policies.models import Policy


@transaction.atomic
def tenant_create(
    *, actor: User | None, top: Policy, admin_group: Group, groups: Iterable[Group] = ()
) -> Tenant:
    """Make the policy with all below it the tree of a tenant.

    Args:
        groups: those whose people belong to it; the administrators' group does, too.

    Raises:
        BadInput: naming `top`, `admin_group` or `groups`.
    """
    live_lock()
    top = Policy.objects.get(pk=top.pk)
    if top.is_removed or top.parent_id is not None or top.tenant_id is not None:
        problem = f"{top.name} is the top of a tenant already"
        if top.is_removed:
            problem = f"{top.name} was removed"
        elif top.parent_id is not None:
            problem = f"{top.name} has a parent: choose a policy without one"
        raise _bad_input("top", problem)
    tree = _tree(top)
    wanted = _groups(admin_group, groups, tree=tree, tenant=None)
    tenant = Tenant.objects.create(admin_group=admin_group)
    _groups_set(tenant, wanted)
    Policy.objects.filter(pk__in=tree).update(tenant=tenant)
    tenant_change_notify(policy_ids=tree, tenant_ids=[tenant.pk])
    _finish("tenant.created", actor, tenant, top.name, before={}, people=_people(wanted))
    return tenant


@transaction.atomic
def tenant_change(
    *,
    actor: User | None,
    tenant: Tenant,
    admin_group: Group | None = None,
    groups: Iterable[Group] | None = None,
) -> Tenant:
    """Change the values that are not None; `groups` replaces those that belong to it.

    A former administrators' group still belongs to it, unless `groups` leaves it out.

    Raises:
        BadInput: naming the field.
    """
    live_lock()
    tenant = Tenant.objects.select_related("admin_group").get(pk=tenant.pk)
    before, known = tenant_values(tenant), _groups_of(tenant)
    head = admin_group if admin_group is not None else tenant.admin_group
    tree = list(Policy.objects.filter(tenant=tenant).values_list("pk", flat=True))
    wanted = _groups(head, known if groups is None else groups, tree=tree, tenant=tenant)
    if tenant.admin_group_id != head.pk:
        tenant.admin_group = head
        tenant.save(update_fields=["admin_group"])
    _groups_set(tenant, wanted)
    if before != tenant_values(tenant):
        people = _people([*known, *wanted])
        _finish("tenant.changed", actor, tenant, tenant_name(tenant), before=before, people=people)
    return tenant


@transaction.atomic
def tenant_remove(*, actor: User | None, tenant: Tenant) -> None:
    """Remove a tenant: its policies, people and groups stay, and belong to no tenant."""
    live_lock()
    tenant = Tenant.objects.select_related("admin_group").get(pk=tenant.pk)
    name, before, people = tenant_name(tenant), tenant_values(tenant), _people(_groups_of(tenant))
    tree = Policy.objects.filter(tenant=tenant)
    tenant_change_notify(policy_ids=tree.values_list("pk", flat=True), tenant_ids=[tenant.pk])
    tree.update(tenant=None)
    pk = tenant.pk
    tenant.delete()
    event_record(
        "tenant.removed",
        actor=actor,
        object_type="tenant",
        object_id=pk,
        data={"name": name, "before": before, "after": {}},
    )
    _notify_people(people)


def tenant_top(tenant: Tenant) -> Policy | None:
    """The policy above all others of it."""
    return Policy.objects.filter(tenant=tenant, parent=None, removed_at__isnull=True).first()


def tenant_name(tenant: Tenant) -> str:
    """The name of its top policy."""
    top = tenant_top(tenant)
    return top.name if top is not None else str(tenant)


def tenant_values(tenant: Tenant) -> dict[str, Any]:
    """Its facts for the audit log."""
    return {
        "admin_group": tenant.admin_group.name,
        "groups": sorted(group.name for group in _groups_of(tenant)),
    }


def _groups(
    head: Group, groups: Iterable[Group], *, tree: list[int], tenant: Tenant | None
) -> list[Group]:
    """The administrators' group and the others, each once.

    Raises:
        BadInput: one is built in, of another tenant, or missing though a policy names it.
    """
    found = {group.pk: group for group in (head, *groups)}
    for group in found.values():
        name = "admin_group" if group.pk == head.pk else "groups"
        if group.name in BUILT_IN_GROUPS:
            raise _bad_input(name, f"{group.name} is built in, and of no tenant")
        known = TenantGroup.objects.filter(group=group).first()
        if known is not None and (tenant is None or known.tenant_id != tenant.pk):
            raise _bad_input(name, f"{group.name} belongs to another tenant")
    foreign = Policy.objects.filter(pk__in=tree).exclude(group__in=found)
    first = foreign.select_related("group").order_by("pk").first()
    if first is not None:
        raise _bad_input("groups", f"add {first.group.name}, the group of policy {first.name}")
    return list(found.values())


def _groups_set(tenant: Tenant, groups: Iterable[Group]) -> None:
    wanted = {group.pk for group in groups}
    rows = TenantGroup.objects.filter(tenant=tenant)
    rows.exclude(group__in=wanted).delete()
    missing = wanted - set(rows.values_list("group", flat=True))
    TenantGroup.objects.bulk_create(
        TenantGroup(tenant=tenant, group_id=pk) for pk in sorted(missing)
    )


def _groups_of(tenant: Tenant) -> list[Group]:
    return list(Group.objects.filter(belongs__tenant=tenant).order_by("name", "pk"))


def _people(groups: Iterable[Group]) -> list[int]:
    rows = User.objects.filter(groups__in=list(groups)).order_by()
    return list(rows.values_list("pk", flat=True).distinct())


def _tree(top: Policy) -> list[int]:
    """Ids of the policy and everything below it, removed ones too, whose work may still run."""
    found = [top.pk]
    for one in found:
        found += Policy.objects.filter(parent=one).values_list("pk", flat=True)
    return found


def _finish(
    kind: str,
    actor: User | None,
    tenant: Tenant,
    name: str,
    *,
    before: dict[str, Any],
    people: list[int],
) -> None:
    one_tenant_check(people)
    event_record(
        kind,
        actor=actor,
        object_type="tenant",
        object_id=tenant.pk,
        data={"name": name, "before": before, "after": tenant_values(tenant)},
    )
    _notify_people(people)


def _notify_people(people: list[int]) -> None:
    permissions_change_notify(people)
    live_change_notify(topics=["policies", "queues"])


def _bad_input(name: str, problem: str) -> BadInput:
    return BadInput(f"{name}: {problem}.", fields={name: problem})
