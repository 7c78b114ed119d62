"""The rules that a tenant sets to its policies: they stay in its tree, with its groups, within it.

The first two hold for everybody, the last for administrators of the tenant: what its top may hold
is not theirs to raise. A limit of the top holds for all below it anyway; reservations of children
would count as its own where it sets none, so these are looked at.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from apps.accounts.models import TenantGroup, User
from apps.accounts.selectors import group_ids, is_admin, is_queue_admin, tenants_administered_by
from apps.configuration.services.walls import wall_moved
from apps.core.errors import BadInput, Conflict, NotAllowed
from apps.core.units import milli_text
from apps.policies.models import Policy, PolicyAmount, Queue

# What administrators of queues set, and of that what those of a tenant do. The rest bears upon
# others' work: how long a task may not be preempted, how often it is, and which of two goes first.
QUEUE_SETTINGS = frozenset(
    {
        "name",
        "allow_over_quota",
        "on_preemption",
        "on_node_loss",
        "min_runtime_s",
        "max_preemptions",
        "grace_s",
        "max_priority",
        "max_waiting",
    }
)
OTHERS_CONCERN = frozenset({"min_runtime_s", "max_preemptions", "grace_s", "max_priority"})
OWN_LIMITS = OTHERS_CONCERN | {"max_waiting", "allow_over_quota"}
# What administrators of a tenant make below its top; each stands in every revision.
MOST_POLICIES = 500
Totals = Mapping[tuple[int, str], int]


@dataclass(frozen=True, slots=True)
class Shares:
    """What policies of a tenant reserve, by policy and key, in thousandths.

    `below` is the sum of the children's, of which each counts by its own reservation, or by its
    children's where it has none.
    """

    own: Totals = field(default_factory=dict)
    below: Totals = field(default_factory=dict)


def is_tenants_own(actor: User | None) -> bool:
    """Whether somebody acts as administrator of a tenant, and of nothing else."""
    return actor is not None and not is_admin(actor) and bool(tenants_administered_by(actor))


def tenant_place_check(actor: User | None, policy: Policy) -> None:
    """Before a policy is stored: give it the tenant of its parent, or say why it may not stand so.

    Raises:
        BadInput: naming `parent` or `group`.
        NotAllowed: administrators of a tenant do not change its top.
    """
    parent, known = policy.parent, policy.tenant_id
    if is_tenants_own(actor):
        _check_own_place(actor, policy)
    is_new = policy._state.adding
    if not is_new and known is not None:
        was = Policy.objects.values_list("parent", flat=True).get(pk=policy.pk)
        if was is None and parent is not None:
            raise _bad("parent", f"{policy.name} is the top of a tenant, and stands below nothing")
        if was is not None and (parent is None or parent.tenant_id != known):
            raise _bad("parent", f"{policy.name} stays below the top of its tenant")
    elif parent is not None:
        policy.tenant_id = parent.tenant_id
    if policy.tenant_id is not None:
        _check_groups(policy, known)


def policies_bound_check(actor: User | None, policy: Policy) -> None:
    """Before a new policy is stored.

    Raises:
        Conflict: the tenant has as many policies as its administrators may make.
    """
    if not is_tenants_own(actor):
        return
    live = Policy.objects.filter(tenant=policy.tenant_id, removed_at__isnull=True)
    if live.count() >= MOST_POLICIES:
        problem = f"has {MOST_POLICIES} policies already: remove one first"
        raise Conflict(f"The tenant {problem}.", fields={"parent": problem})


def tenant_of_children(policy: Policy, *, was: int | None) -> None:
    """After a policy is stored: what stands below it is of the same tenant.

    Args:
        was: the tenant that the policy had until now.
    """
    below = _below(policy)
    if was != policy.tenant_id:
        wall_moved(policy_ids=[policy.pk, *below], tenant_ids=[was, policy.tenant_id])
    Policy.objects.filter(pk__in=below).exclude(tenant=policy.tenant_id).update(
        tenant=policy.tenant_id
    )


def shares_of(tenant_id: int | None) -> Shares:
    """What the policies of the tenant reserve now."""
    if tenant_id is None:
        return Shares()
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
    return Shares(own, below)


def within_tenant_check(actor: User | None, policy: Policy, before: Shares) -> None:
    """After an administrator of a tenant changed amounts: nothing holds more than what is above it.

    Args:
        before: what administrators of the installation set stays, and can be made less.

    Raises:
        BadInput: naming the amount.
        NotAllowed: the actor administers nothing.
    """
    if actor is None or is_admin(actor):
        return
    if not is_tenants_own(actor):
        raise NotAllowed("This is for administrators.")
    after = shares_of(policy.tenant_id)
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
    """Which settings of a queue somebody sets who sets any.

    Administrators of queues do not set limits for themselves: of a queue of their own team's.
    """
    if actor is None or is_admin(actor):
        return QUEUE_SETTINGS
    if is_queue_admin(actor):
        is_own = queue is not None and queue.policy.group_id in group_ids(actor)
        return QUEUE_SETTINGS - OWN_LIMITS if is_own else QUEUE_SETTINGS
    return QUEUE_SETTINGS - OTHERS_CONCERN if is_tenants_own(actor) else frozenset()


def queue_settings_check(actor: User | None, queue: Queue, changed: set[str]) -> None:
    """Refuse what administrators of a tenant, or of a queue of their own team's, do not set.

    Raises:
        BadInput: naming the setting.
        NotAllowed: the actor administers neither queues nor a tenant.
    """
    settable = queue_settings_of(actor, queue)
    if not settable:
        raise NotAllowed("This is for those who administer queues.")
    problems = dict.fromkeys(
        sorted(changed - settable),
        "bears upon others' work: an administrator of the installation sets it",
    )
    if problems:
        raise BadInput("; ".join(f"{k} {v}" for k, v in problems.items()) + ".", fields=problems)


def _check_own_place(actor: User | None, policy: Policy) -> None:
    own = tenants_administered_by(actor) if actor is not None else frozenset()
    is_new = policy._state.adding
    if not is_new and (policy.tenant_id not in own or _is_top(policy)):
        raise NotAllowed(f"{policy.name} is for administrators of the installation.")
    if policy.parent is None or policy.parent.tenant_id not in own:
        raise _bad("parent", "choose the policy of yours below which it stands")


def _is_top(policy: Policy) -> bool:
    return Policy.objects.filter(pk=policy.pk, parent__isnull=True).exists()


def _check_groups(policy: Policy, known: int | None) -> None:
    """Its group, and those of what it brings along, belong to the tenant."""
    groups = TenantGroup.objects.filter(tenant=policy.tenant_id)
    own = set(groups.values_list("group", flat=True))
    if policy.group_id not in own:
        raise _bad("group", f"{policy.group.name} does not belong to the tenant of this policy")
    if policy._state.adding or known is not None:
        return
    foreign = Policy.objects.filter(pk__in=_below(policy)).exclude(group__in=own).first()
    if foreign is not None:
        raise _bad("parent", f"{foreign.name} below it has a group that is not of that tenant")


def _below(policy: Policy) -> list[int]:
    """Ids of everything below, removed policies too."""
    found = [policy.pk]
    for one in found:
        found += Policy.objects.filter(parent=one).values_list("pk", flat=True)
    return found[1:]


def _limits_above(policy: Policy) -> dict[str, str]:
    """Where the policy's limit is above one of those above it."""
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


def _bad(name: str, problem: str) -> BadInput:
    return BadInput(f"{name}: {problem}.", fields={name: problem})
