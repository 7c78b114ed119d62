"""Standing and budgets: who covers a task, and how many more a policy may have.

A standing is a number: one bit per level from the top, 0 where that policy covers the task, the
bits of a short chain filled up with its last one. So 0 is reserved, less is better, and the
highest bit tells over quota.
"""

from __future__ import annotations

from apps.allocation.engine.compiled import UNCOUNTED, Amounts, Work
from apps.allocation.engine.ledger import Ledger
from apps.allocation.engine.plan import Standing

RESERVED = 0


def standing_of(ledger: Ledger, work: Work) -> int | None:
    """The standing of the next task of `work`, None while it may not be admitted at all.

    Non-preemptible work is admitted only while every level's reservation holds it beside other
    such work; work that exceeds a limit by permission is always over quota; and a queue may
    forbid over-quota work.
    """
    turn = ledger.turns[work.chain[0]]
    if work.standing_turn != turn:
        work.standing = _standing_of(ledger, work)
        work.standing_turn = turn
    return work.standing


def _standing_of(ledger: Ledger, work: Work) -> int | None:
    depth = ledger.compiled.depth
    if work.has_exceeded:
        standing = (1 << depth) - 1
    else:
        standing = _coverage(ledger, work, depth)
        if standing and not work.run.is_preemptible:
            return None
    if not work.queue.allows_over_quota and is_over_quota(standing, depth):
        return None
    return standing


def _coverage(ledger: Ledger, work: Work, depth: int) -> int:
    standing = 0
    bit = 0
    for policy in work.chain:
        bit = 0 if covers(ledger, policy, work) else 1
        standing = standing << 1 | bit
    for _ in range(depth - len(work.chain)):
        standing = standing << 1 | bit
    return standing


def covers(ledger: Ledger, policy: int, work: Work, count: int = 1) -> bool:
    """Whether the policy's reservation holds `count` more tasks of `work`."""
    reserved = ledger.compiled.reserved[policy]
    used = (ledger.usage if work.run.is_preemptible else ledger.fixed)[policy]
    is_named = False
    for key, amount in work.shape.amounts:
        if key in reserved:
            is_named = True
            if used[key] + amount * count > reserved[key]:
                return False
    return is_named


def covers_wholly(ledger: Ledger, policy: int, amounts: Amounts) -> bool:
    """Whether the policy's whole usage, with `amounts` more, stays within its reservation.

    Asked for keys that `amounts` name and the reservation too; where there is none, it does not.
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


def is_over_quota(standing: int, depth: int) -> bool:
    return bool(standing >> (depth - 1))


def name_of(standing: int, depth: int) -> Standing:
    if standing == RESERVED:
        return Standing.RESERVED
    return Standing.OVER_QUOTA if is_over_quota(standing, depth) else Standing.LENT


def budget(ledger: Ledger, work: Work, standing: int, at_most: int) -> int:
    """How many tasks of `work` may be offered with this standing, at most `at_most`."""
    count = min(at_most, within_limits(ledger, work))
    if count <= 0 or standing_of(ledger, work) != standing:
        return 0
    return min(count, _within_reservations(ledger, work, standing))


def is_within_budgets(ledger: Ledger, work: Work, standing: int) -> bool:
    """Whether all that is charged is within what `work` may have with this standing."""
    return _within_limits(ledger, work) >= 0 and _within_reservations(ledger, work, standing) >= 0


def _within_reservations(ledger: Ledger, work: Work, standing: int) -> int:
    """How many more tasks of `work` the reservations hold that give it this standing.

    Less than 0 where they are exceeded.
    """
    count = UNCOUNTED
    if work.has_exceeded:
        return count
    depth = ledger.compiled.depth
    for level, policy in enumerate(work.chain):
        if not standing >> (depth - 1 - level) & 1:
            count = min(count, _within_reservation(ledger, policy, work))
    return count


def _within_reservation(ledger: Ledger, policy: int, work: Work) -> int:
    reserved = ledger.compiled.reserved[policy]
    used = (ledger.usage if work.run.is_preemptible else ledger.fixed)[policy]
    return min(
        (
            (reserved[key] - used[key]) // amount
            for key, amount in work.shape.amounts
            if key in reserved
        ),
        default=0,
    )


def within_limits(ledger: Ledger, work: Work) -> int:
    """How many more tasks of `work` every limit above it allows."""
    turn = ledger.turns[work.chain[0]]
    if work.limits_turn != turn:
        work.within_limits = max(_within_limits(ledger, work), 0)
        work.limits_turn = turn
    return work.within_limits


def _within_limits(ledger: Ledger, work: Work) -> int:
    """Less than 0 where a limit is exceeded."""
    compiled = ledger.compiled
    count = UNCOUNTED
    for policy in work.chain:
        limits = compiled.limits[policy]
        if limits and not (work.has_exceeded and policy == work.policy):
            for key, amount in work.shape.amounts:
                if key in limits:
                    count = min(count, (limits[key] - ledger.counted(policy, key)) // amount)
        if compiled.user_limits[policy] and work.run.user is not None:
            count = min(count, _within_user_limit(ledger, policy, work.run.user, work))
    return count


def _within_user_limit(ledger: Ledger, policy: int, user: int | str, work: Work) -> int:
    limits = ledger.compiled.user_limits[policy]
    used = ledger.user_usage(policy, user)
    return min(
        (
            (limits[key] - used[key]) // amount
            for key, amount in work.shape.amounts
            if key in limits
        ),
        default=UNCOUNTED,
    )
