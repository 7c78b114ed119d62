"""Creates, changes and removes policies. Changes apply at once; each makes a revision."""

from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.services.groups import permissions_change_notify
from apps.configuration.services.change_records import change_record
from apps.configuration.services.drafts import draft_save_record
from apps.configuration.services.grants import policy_grants_sync, tasks_return_without_permission
from apps.configuration.services.queue_closure import queues_close, rules_remove
from apps.configuration.services.rows import draft_lock, draft_wait, live_lock
from apps.configuration.services.tenant_checks import (
    policy_count_check,
    policy_tenant_check,
    policy_tenant_propagate,
    tenant_amounts_check,
    tenant_reservations,
)
from apps.core.errors import BadInput, Conflict
from apps.core.model_errors import from_model_error
from apps.core.units import milli, quantities_text
from apps.policies.models import DraftPool, Policy, PolicyAmount, Queue
from apps.policies.selectors import known_keys, policy_family
from apps.tasks.services.task_groups import tasks_regroup

# The deepest tree of policies. Passes and pages walk it.
MOST_LEVELS = 16
COLUMNS = frozenset(
    {
        "name",
        "description",
        "group",
        "parent",
        "weight",
        "is_strict",
        "user_limit",
        "logs_open_to_group",
        "budget",
        "budget_stops",
    }
)
CHANGEABLE = COLUMNS | {"reserved", "limit"}


@transaction.atomic
def policy_create(
    *,
    actor: User | None,
    name: str,
    group: Group,
    reserved: Mapping[str, Any] | int | str | None = None,
    limit: Mapping[str, Any] | int | str | None = None,
    parent: Policy | None = None,
    description: str = "",
    weight: int = 1,
    is_strict: bool = False,
    user_limit: Mapping[str, Any] | int | str | None = None,
    logs_open_to_group: bool = False,
    budget: Decimal | None = None,
    budget_stops: bool = False,
) -> Policy:
    """Create a policy, last in every order; its group sees it and uses its later queues.

    Args:
        reserved, limit, user_limit: amounts per key; a key that is left out has no reservation,
            no limit. A bare number is a number of GPUs.
        budget: in the currency, per calendar month.

    Raises:
        BadInput: naming the field.
        Conflict: the tenant has as many policies as its administrators may make.
    """
    live_lock()
    last = Policy.objects.aggregate(last=Max("position"))["last"]
    policy = Policy(
        name=name.strip(),
        group=group,
        parent=parent,
        description=description,
        weight=weight,
        is_strict=is_strict,
        user_limit=_amounts(user_limit, "user_limit"),
        logs_open_to_group=logs_open_to_group,
        budget=budget,
        budget_stops=budget_stops,
        position=0 if last is None else last + 1,
    )
    _check_parent(policy)
    policy_tenant_check(actor, policy)
    policy_count_check(actor, policy)
    reservations = tenant_reservations(policy.tenant_id)
    _save(policy)
    _amounts_write(policy, _amounts(reserved, "reserved"), _amounts(limit, "limit"))
    tenant_amounts_check(actor, policy, reservations)
    policy_grants_sync(policies=[policy], actor=actor)
    _record("policy.created", policy, actor=actor, note=f"Policy {policy.name} made.")
    return policy


@transaction.atomic
def policy_change(*, actor: User | None, policy: Policy, changes: Mapping[str, Any]) -> Policy:
    """Apply `changes`; `reserved` and `limit` replace all amounts of their kind.

    With another group, the new group gets the permissions that the old one had through the policy,
    and waiting tasks of people who may no longer enqueue become drafts.

    Raises:
        BadInput: naming the field.
        Conflict: the policy is removed.
    """
    unknown = set(changes) - CHANGEABLE
    if unknown:
        raise BadInput(f"{min(unknown)} cannot be changed.", fields={min(unknown): "is unknown"})
    live_lock()
    policy = _live_policy(policy)
    old_group, old_tenant = policy.group, policy.tenant_id
    for field in COLUMNS & set(changes):
        value = changes[field]
        if field == "user_limit":
            value = _amounts(value, field)
        setattr(policy, field, value.strip() if field == "name" else value)
    _check_parent(policy)
    policy_tenant_check(actor, policy)
    reservations = tenant_reservations(policy.tenant_id)
    _save(policy)
    policy_tenant_propagate(policy, was=old_tenant)
    if "name" in changes and DraftPool.objects.filter(dedicated_to=policy).exists():
        # The draft's document names the policy, so its readers have an old version now.
        draft_save_record(draft_lock(), actor=actor, changes=[f"the name of policy {policy.name}"])
    _amounts_change(policy, changes)
    tenant_amounts_check(actor, policy, reservations)
    if {"user_limit", "parent"} & set(changes):
        tasks_regroup(policy_ids=policy_family(policy.pk))
    if policy.group_id != old_group.pk:
        _move_group(policy, old_group, actor)
    note = f"Policy {policy.name} changed: {', '.join(sorted(changes))}."
    _record("policy.changed", policy, actor=actor, note=note, data={"fields": sorted(changes)})
    return policy


def policy_set_amounts(
    *,
    actor: User | None,
    policy: Policy,
    reserved: Mapping[str, Any] | int | str | None,
    limit: Mapping[str, Any] | int | str | None,
) -> Policy:
    """Replace reservation and limit; a reservation above the limit is refused."""
    changes = {"reserved": reserved, "limit": limit}
    return policy_change(actor=actor, policy=policy, changes=changes)


def policy_move(
    *, actor: User | None, policy: Policy, parent: Policy | None, group: Group
) -> Policy:
    """Change the parent, the group, or both."""
    changes = {"parent": parent, "group": group}
    return policy_change(actor=actor, policy=policy, changes=changes)


@transaction.atomic
def policy_remove(*, actor: User | None, policy: Policy) -> None:
    """Close its queues; running tasks finish, keep their capacity, and have no reservation.

    Raises:
        Conflict: it has children, is the top of a tenant, or a pool is dedicated to it, now or in
            the draft.
    """
    live_lock()
    policy = _live_policy(policy)
    children = policy.children.filter(removed_at__isnull=True)
    if children:
        names = ", ".join(child.name for child in children)
        raise Conflict(f"{policy.name} is the parent of {names}: move or remove those first.")
    if policy.tenant_id is not None and policy.parent_id is None:
        raise Conflict(f"{policy.name} is the top of a tenant: remove the tenant first.")
    _check_no_pool_of(policy)
    queues = list(policy.queues.filter(removed_at__isnull=True))
    queues_close(queues=queues, actor=actor, reason=f"Policy {policy.name} was removed.")
    policy.removed_at = timezone.now()
    policy.save(update_fields=["removed_at"])
    rules_remove(Policy, [policy.pk])
    _record("policy.removed", policy, actor=actor, note=f"Policy {policy.name} removed.")


def amounts_of(policy: Policy) -> tuple[dict[str, str], dict[str, str]]:
    """Reservation and limit as typed."""
    rows = list(policy.amounts.filter(pool__isnull=True))
    reserved = {row.key: row.reserved_text for row in rows if row.reserved_text}
    return reserved, {row.key: row.limit_text for row in rows if row.limit_text}


# --- parts -----------------------------------------------------------------------------------


def _live_policy(policy: Policy) -> Policy:
    """The current row; the live side is locked."""
    row = Policy.objects.select_related("group").get(pk=policy.pk)
    if row.is_removed:
        raise Conflict(f"Policy {row.name} was removed.")
    return row


def _check_no_pool_of(policy: Policy) -> None:
    """A draft, too, would dedicate its pool to a later policy of the same name."""
    pools = policy.dedicated_pools.filter(removed_at__isnull=True)
    if pools:
        names = ", ".join(pool.name for pool in pools)
        raise Conflict(f"{policy.name} has pools dedicated to it: {names}. Change those first.")
    draft_wait()
    drafts = DraftPool.objects.filter(dedicated_to=policy)
    if drafts:
        names = ", ".join(pool.name for pool in drafts)
        raise Conflict(
            f"{policy.name} has pools dedicated to it in the draft: {names}. Change those first."
        )


def _save(policy: Policy) -> None:
    try:
        policy.full_clean()
    except ValidationError as error:
        raise from_model_error(error) from error
    policy.save()


def _amounts(value: object, field: str) -> dict[str, str]:
    return quantities_text({} if value is None else value, field=field, keys=known_keys())


def _amounts_change(policy: Policy, changes: Mapping[str, Any]) -> None:
    reserved, limit = amounts_of(policy)
    if "reserved" in changes:
        reserved = _amounts(changes["reserved"], "reserved")
    if "limit" in changes:
        limit = _amounts(changes["limit"], "limit")
    if {"reserved", "limit"} & set(changes):
        _amounts_write(policy, reserved, limit)


def _amounts_write(policy: Policy, reserved: Mapping[str, str], limit: Mapping[str, str]) -> None:
    problems = {
        f"reserved.{key}": f"is {text}, above the limit of {limit[key]}"
        for key, text in reserved.items()
        if key in limit and milli(text) > milli(limit[key])
    }
    if problems:
        raise BadInput("; ".join(f"{k} {v}" for k, v in problems.items()) + ".", fields=problems)
    policy.amounts.filter(pool__isnull=True).delete()
    PolicyAmount.objects.bulk_create(
        PolicyAmount(
            policy=policy,
            key=key,
            reserved_text=reserved.get(key, ""),
            reserved_milli=milli(reserved[key]) if key in reserved else None,
            limit_text=limit.get(key, ""),
            limit_milli=milli(limit[key]) if key in limit else None,
        )
        for key in sorted({*reserved, *limit})
    )


def _check_parent(policy: Policy) -> None:
    """Require that parents are live, have no queues, and are never below their children."""
    parent = policy.parent
    if parent is None:
        return
    if parent.is_removed:
        raise _bad_parent(f"policy {parent.name} was removed")
    queues: Collection[Queue] = parent.queues.filter(removed_at__isnull=True)
    if queues:
        names = ", ".join(queue.name for queue in queues)
        raise _bad_parent(
            f"{parent.name} has queues ({names}); only policies without have children"
        )
    above: Policy | None = parent
    levels = _levels_from(policy)
    while above is not None:
        if above.pk == policy.pk:
            raise _bad_parent(f"{parent.name} is below {policy.name}: that would be a circle")
        above = above.parent
        levels += 1
    # An older tree that is deeper can still be changed otherwise.
    is_moved = not Policy.objects.filter(pk=policy.pk, parent=parent).exists()
    if is_moved and levels > MOST_LEVELS:
        raise _bad_parent(f"would make a tree of {levels} levels: at most {MOST_LEVELS}")


def _levels_from(policy: Policy) -> int:
    """How many levels of policies there are, from this one down; counted as far as it matters."""
    levels, row = 1, [policy.pk]
    while levels <= MOST_LEVELS:
        children = Policy.objects.filter(parent__in=row, removed_at__isnull=True)
        row = list(children.values_list("pk", flat=True))
        if not row:
            break
        levels += 1
    return levels


def _bad_parent(problem: str) -> BadInput:
    return BadInput(f"parent: {problem}.", fields={"parent": problem})


def _move_group(policy: Policy, old_group: Group, actor: User | None) -> None:
    policy_grants_sync(policies=[policy], actor=actor)
    reason = f"Policy {policy.name} moved to the group {policy.group.name}."
    tasks_return_without_permission(policy=policy, reason=reason)
    people = User.objects.filter(groups__in=[old_group, policy.group])
    permissions_change_notify(people.values_list("pk", flat=True))


def _record(
    kind: str,
    policy: Policy,
    *,
    actor: User | None,
    note: str,
    data: Mapping[str, Any] | None = None,
) -> None:
    change_record(
        kind,
        actor=actor,
        object_type="policy",
        object_id=policy.pk,
        policy_id=policy.pk,
        note=note,
        data={"name": policy.name, **(data or {})},
        topics=[f"policy.{policy.pk}", "policies", "queues"],
    )
