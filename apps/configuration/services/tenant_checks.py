"""Checks that a tenant's policies stay in its tree, with its groups, and within its amounts.

The first two apply to everybody, the last to administrators of the tenant, who must not raise what
the top may hold. A limit of the top applies to all below it anyway; reservations of children would
count as its own where it sets none, so these are checked.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from apps.accounts.models import TenantGroup, User
from apps.accounts.selectors import group_ids, is_admin, is_queue_admin, tenants_administered_by
from apps.configuration.services.isolation import tenant_change_notify
from apps.core.errors import BadInput, Conflict, NotAllowed
from apps.core.units import milli_text
from apps.policies.models import Policy, PolicyAmount, Queue

# The settings that administrators of queues change, and those that a tenant's do. The rest affects
# others' tasks: how long a task may not be preempted, how often it is, and which of two goes first;
# or it is a decision of the installation: whether running tasks have streams.
QUEUE_SETTINGS = frozenset(
    {
        "name",
        "allow_over_quota",
        "allow_streams",
        "on_preemption",
        "on_node_loss",
        "min_runtime_s",
        "max_preemptions",
        "grace_s",
        "max_priority",
        "max_waiting",
        "idle_warn_minutes",
        "idle_stop_minutes",
    }
)
INSTALLATION_SETTINGS = frozenset(
    {"min_runtime_s", "max_preemptions", "grace_s", "max_priority", "allow_streams"}
)
OWN_TEAM_LIMITS = INSTALLATION_SETTINGS | {
    *("max_waiting", "allow_over_quota", "idle_warn_minutes", "idle_stop_minutes")
}
# The most policies that a tenant's administrators create below its top; every revision has them.
MOST_POLICIES = 500
Totals = Mapping[tuple[int, str], int]


@dataclass(frozen=True, slots=True)
class TenantReservations:
    """The reservations of a tenant's policies, by policy and key, in thousandths.

    `below` is the sum of the children's, of which each counts by its own reservation, or by its
    children's where it has none.
    """

    own: Totals = field(default_factory=dict)
    below: Totals = field(default_factory=dict)


def is_tenant_admin_only(actor: User | None) -> bool:
    """Whether `actor` is an administrator of a tenant, and of nothing else."""
    return actor is not None and not is_admin(actor) and bool(tenants_administered_by(actor))


def policy_tenant_check(actor: User | None, policy: Policy) -> None:
    """Give a policy the tenant of its parent before it is stored, or refuse its place.

    Raises:
        BadInput: naming `parent` or `group`.
        NotAllowed: administrators of a tenant do not change its top.
    """
    parent, known = policy.parent, policy.tenant_id
    if is_tenant_admin_only(actor):
        _check_own_tree(actor, policy)
    is_new = policy._state.adding
    if not is_new and known is not None:
        was = Policy.objects.values_list("parent", flat=True).get(pk=policy.pk)
        if was is None and parent is not None:
            raise _bad_input("parent", f"{policy.name} is the top of a tenant, which has no parent")
        if was is not None and (parent is None or parent.tenant_id != known):
            raise _bad_input("parent", f"{policy.name} stays below the top of its tenant")
    elif parent is not None:
        policy.tenant_id = parent.tenant_id
    if policy.tenant_id is not None:
        _check_groups(policy, known)


def policy_count_check(actor: User | None, policy: Policy) -> None:
    """Check the number of policies before a new one is stored.

    Raises:
        Conflict: the tenant has as many policies as its administrators may make.
    """
    if not is_tenant_admin_only(actor):
        return
    live = Policy.objects.filter(tenant=policy.tenant_id, removed_at__isnull=True)
    if live.count() >= MOST_POLICIES:
        problem = f"has {MOST_POLICIES} policies already: remove one first"
        raise Conflict(f"The tenant {problem}.", fields={"parent": problem})


def policy_tenant_propagate(policy: Policy, *, was: int | None) -> None:
    """Give the policies below a stored one its tenant.

    Args:
        was: the tenant that the policy had until now.
    """
    below = _below(policy)
    if was != policy.tenant_id:
        tenant_change_notify(policy_ids=[policy.pk, *below], tenant_ids=[was, policy.tenant_id])
    Policy.objects.filter(pk__in=below).exclude(tenant=policy.tenant_id).update(
        tenant=policy.tenant_id
    )


def tenant_reservations(tenant_id: int | None) -> TenantReservations:
    """The current reservations of the tenant's policies."""
    if tenant_id is None:
        return TenantReservations()
    live = Policy.objects.filter(tenant=tenant_id, removed_at__isnull=True)
    parents = dict(live.values_list("pk", "parent_id"))
    amounts = PolicyAmount.objects.filter(policy__in=parents, pool__isnull=True)
    rows = amounts.filter(reserved_milli__isnull=False)
    own = {
        (policy, key): milli or 0
        for policy, key, milli in rows.values_list("policy_id", "key", "reserved_milli")
    }
    children: dict[int | None, list[int]] = defaultdict(list)
    for pk, parent in parents.items():
        children[parent].append(pk)
    below: dict[tuple[int, str], int] = {}

    def reserved(pk: int, key: str) -> int:
        below[pk, key] = sum(reserved(child, key) for child in children[pk])
        return own.get((pk, key), below[pk, key])

    for key in {key for _, key in own}:
        for top in children[None]:
            reserved(top, key)
    return TenantReservations(own, below)


def tenant_amounts_check(actor: User | None, policy: Policy, before: TenantReservations) -> None:
    """Check amounts after a tenant's administrator changed them: none exceeds those above it.

    Args:
        before: the reservations so far: what the installation's administrators set may stay.

    Raises:
        BadInput: naming the amount.
        NotAllowed: the actor administers nothing.
    """
    if actor is None or is_admin(actor):
        return
    if not is_tenant_admin_only(actor):
        raise NotAllowed("This is for administrators.")
    after = tenant_reservations(policy.tenant_id)
    rows = Policy.objects.filter(tenant=policy.tenant_id, removed_at__isnull=True)
    policies = {row.pk: row for row in rows}
    problems = {}
    for (pk, key), total in sorted(after.below.items()):
        is_top = policies[pk].parent_id is None
        allowed = after.own.get((pk, key), 0 if is_top else total)
        if total > max(allowed, before.below.get((pk, key), 0)):
            problems[f"reserved.{key}"] = (
                f"would make {milli_text(total)} with the others below {policies[pk].name}, which "
                f"has {milli_text(allowed)} reserved"
            )
    problems |= _limits_above(policy)
    if problems:
        raise BadInput("; ".join(f"{k} {v}" for k, v in problems.items()) + ".", fields=problems)


def queue_settings_of(actor: User | None, queue: Queue | None = None) -> frozenset[str]:
    """Which settings of a queue `actor` may set, if any at all.

    Administrators of queues do not set limits for themselves, on queues of their own teams.
    """
    if actor is None or is_admin(actor):
        return QUEUE_SETTINGS
    if is_queue_admin(actor):
        is_own = queue is not None and queue.policy.group_id in group_ids(actor)
        return QUEUE_SETTINGS - OWN_TEAM_LIMITS if is_own else QUEUE_SETTINGS
    return QUEUE_SETTINGS - INSTALLATION_SETTINGS if is_tenant_admin_only(actor) else frozenset()


def queue_settings_check(actor: User | None, queue: Queue, changed: set[str]) -> None:
    """Refuse settings that `actor` may not change as administrator of a tenant or of queues.

    Raises:
        BadInput: naming the setting.
        NotAllowed: the actor administers neither queues nor a tenant.
    """
    settable = queue_settings_of(actor, queue)
    if not settable:
        raise NotAllowed("This is for those who administer queues.")
    problems = dict.fromkeys(
        sorted(changed - settable),
        "affects others' tasks: an administrator of the installation sets it",
    )
    if problems:
        raise BadInput("; ".join(f"{k} {v}" for k, v in problems.items()) + ".", fields=problems)


def _check_own_tree(actor: User | None, policy: Policy) -> None:
    own = tenants_administered_by(actor) if actor is not None else frozenset()
    is_new = policy._state.adding
    if not is_new and (policy.tenant_id not in own or _is_top(policy)):
        raise NotAllowed(f"{policy.name} is for administrators of the installation.")
    if policy.parent is None or policy.parent.tenant_id not in own:
        raise _bad_input("parent", "choose one of your policies")


def _is_top(policy: Policy) -> bool:
    return Policy.objects.filter(pk=policy.pk, parent__isnull=True).exists()


def _check_groups(policy: Policy, known: int | None) -> None:
    """Require that its group, and those of the policies below it, belong to the tenant."""
    groups = TenantGroup.objects.filter(tenant=policy.tenant_id)
    own = set(groups.values_list("group", flat=True))
    if policy.group_id not in own:
        raise _bad_input(
            "group", f"{policy.group.name} does not belong to the tenant of this policy"
        )
    if policy._state.adding or known is not None:
        return
    foreign = Policy.objects.filter(pk__in=_below(policy)).exclude(group__in=own).first()
    if foreign is not None:
        raise _bad_input(
            "parent", f"{foreign.name} below it has a group that is not of that tenant"
        )


def _below(policy: Policy) -> list[int]:
    """Ids of all policies below, removed ones too."""
    found = [policy.pk]
    for one in found:
        found += Policy.objects.filter(parent=one).values_list("pk", flat=True)
    return found[1:]


def _limits_above(policy: Policy) -> dict[str, str]:
    """Problems where the policy's limit exceeds one of those above it."""
    problems: dict[str, str] = {}
    limits = dict(policy.amounts.filter(pool__isnull=True).values_list("key", "limit_milli"))
    above = policy.parent
    while above is not None:
        rows = above.amounts.filter(pool__isnull=True, limit_milli__isnull=False)
        for key, most in rows.values_list("key", "limit_milli"):
            mine = limits.get(key)
            if mine is not None and most is not None and mine > most:
                problems[f"limit.{key}"] = f"is above the {milli_text(most)} of {above.name}"
        above = above.parent
    return problems


def _bad_input(name: str, problem: str) -> BadInput:
    return BadInput(f"{name}: {problem}.", fields={name: problem})
