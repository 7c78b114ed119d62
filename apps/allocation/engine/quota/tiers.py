"""Tiers and budgets: who covers a task, and how many more a policy may have.

A tier is a number: one bit per level from the top, 0 where that policy covers the task; a short
chain repeats its last bit. So 0 is reserved, less is better, and the highest bit means over
quota.
"""

from __future__ import annotations

from collections.abc import Iterator

from apps.allocation.engine.compile.compiled_snapshot import UNCOUNTED, Amounts, GroupState
from apps.allocation.engine.model.plan import Tier
from apps.allocation.engine.quota.ledger import Ledger, LimitUse

RESERVED = 0


def tier_of(ledger: Ledger, group: GroupState) -> int | None:
    """The tier of the next task of `group`, None while it may not be admitted at all.

    Non-preemptible work is admitted only while every level's reservation holds all such work
    with it; work that exceeds a limit by permission is always over quota; and a queue may
    forbid over-quota work.
    """
    version = ledger.versions[group.chain[0]]
    if group.tier_version != version:
        group.tier = _tier_of(ledger, group)
        group.tier_version = version
    return group.tier


def _tier_of(ledger: Ledger, group: GroupState) -> int | None:
    depth = ledger.compiled.depth
    if group.has_exceeded:
        tier = (1 << depth) - 1
    else:
        tier = _coverage(ledger, group, depth)
        if tier and not group.queued.is_preemptible:
            return None
    if not group.queue.allows_over_quota and is_over_quota(tier, depth):
        return None
    return tier


def _coverage(ledger: Ledger, group: GroupState, depth: int) -> int:
    tier = 0
    bit = 0
    for policy in group.chain:
        bit = 0 if covers(ledger, policy, group) else 1
        tier = tier << 1 | bit
    for _ in range(depth - len(group.chain)):
        tier = tier << 1 | bit
    return tier


def covers(ledger: Ledger, policy: int, group: GroupState, count: int = 1) -> bool:
    """Whether the policy's reservation holds `count` more tasks of `group`."""
    reserved = ledger.compiled.reserved[policy]
    used = (ledger.usage if group.queued.is_preemptible else ledger.non_preemptible)[policy]
    is_named = False
    for key, amount in group.shape.amounts:
        if key in reserved:
            is_named = True
            if used[key] + amount * count > reserved[key]:
                return False
    return is_named


def covers_wholly(ledger: Ledger, policy: int, amounts: Amounts) -> bool:
    """Whether the policy's whole usage, with `amounts` more, stays within its reservation.

    Only keys that both `amounts` and the reservation name count; False where there is none.
    """
    reserved = ledger.compiled.reserved[policy]
    used = ledger.usage[policy]
    is_named = False
    for key, amount in amounts:
        if key in reserved:
            is_named = True
            if used[key] + amount > reserved[key]:
                return False
    return is_named


def is_over_quota(tier: int, depth: int) -> bool:
    return bool(tier >> (depth - 1))


def name_of(tier: int, depth: int) -> Tier:
    if tier == RESERVED:
        return Tier.RESERVED
    return Tier.OVER_QUOTA if is_over_quota(tier, depth) else Tier.BORROWED


def budget(ledger: Ledger, group: GroupState, tier: int, at_most: int) -> int:
    """How many tasks of `group` may be offered with this tier, at most `at_most`."""
    count = min(at_most, within_limits(ledger, group))
    if count <= 0 or tier_of(ledger, group) != tier:
        return 0
    return min(count, _within_reservations(ledger, group, tier))


def is_within_budgets(ledger: Ledger, group: GroupState, tier: int) -> bool:
    """Whether all that is charged is within what `group` may have with this tier."""
    return _within_limits(ledger, group) >= 0 and _within_reservations(ledger, group, tier) >= 0


def _within_reservations(ledger: Ledger, group: GroupState, tier: int) -> int:
    """How many more tasks of `group` the reservations hold that give it this tier.

    Less than 0 where they are exceeded.
    """
    count = UNCOUNTED
    if group.has_exceeded:
        return count
    depth = ledger.compiled.depth
    for level, policy in enumerate(group.chain):
        if not tier >> (depth - 1 - level) & 1:
            count = min(count, _within_reservation(ledger, policy, group))
    return count


def _within_reservation(ledger: Ledger, policy: int, group: GroupState) -> int:
    reserved = ledger.compiled.reserved[policy]
    used = (ledger.usage if group.queued.is_preemptible else ledger.non_preemptible)[policy]
    return min(
        (
            (reserved[key] - used[key]) // amount
            for key, amount in group.shape.amounts
            if key in reserved
        ),
        default=0,
    )


def within_limits(ledger: Ledger, group: GroupState) -> int:
    """How many more tasks of `group` every limit above it allows."""
    version = ledger.versions[group.chain[0]]
    if group.limits_version != version:
        group.within_limits = max(_within_limits(ledger, group), 0)
        group.limits_version = version
    return group.within_limits


def _within_limits(ledger: Ledger, group: GroupState) -> int:
    """Less than 0 where a limit is exceeded."""
    uses = limit_uses(ledger, group)
    return min(((one.limit - one.used) // one.amount for one in uses), default=UNCOUNTED)


def limit_uses(ledger: Ledger, group: GroupState) -> Iterator[LimitUse]:
    """The limits that the next task of `group` is charged against, from the top."""
    amounts, user = group.shape.amounts, group.queued.user
    return ledger.limit_uses(group.chain, amounts, user=user, is_exempt=group.has_exceeded)


def exceeded_limits(ledger: Ledger, group: GroupState) -> Iterator[tuple[int, int]]:
    """(policy, key) of the limits that keep the next task of `group` out."""
    return ((one.policy, one.key) for one in limit_uses(ledger, group) if one.is_exceeded)
