"""Tasks that could never run, even on empty pools; pure.

Amounts are whole thousandths. No sentence names a policy or pool: the reader may not see them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from apps.core.units import MILLI, milli_text

Amounts = Mapping[str, int]
# A pool that does not list these does not count them; any other key it has none of.
UNCOUNTED_KEYS = frozenset({"cpu", "memory_mb", "slot"})


@dataclass(frozen=True, slots=True)
class PolicyBounds:
    """What one policy allows: the queue's own first, then its ancestors.

    A key that `limit` or `user_limit` does not name is unlimited.
    """

    reserved: Amounts
    limit: Amounts
    user_limit: Amounts


@dataclass(frozen=True, slots=True)
class EmptyPool:
    """An empty pool; `nodes` is None where it has none, or where one did not report yet."""

    capacity: Amounts
    nodes: tuple[Amounts, ...] | None = None


def feasibility_problems(
    *,
    request: Amounts,
    replicas: int,
    is_preemptible: bool,
    policy_bounds: Sequence[PolicyBounds],
    empty_pools: Sequence[EmptyPool],
) -> dict[str, str]:
    """Why a task could never run, per field; empty where it can.

    Args:
        request: of one member.
        policy_bounds: the policy's own, then those of its ancestors.
        empty_pools: the pools that its profile links to, in its order. Without pools nothing is
            judged: a link may come (the task waits with `no_pool`).

    Source: docs/allocation.md,
    "Tiers: reserved before over quota".
    """
    total = {key: amount * replicas for key, amount in request.items() if amount}
    problems = dict(_above_limits(total, replicas, policy_bounds))
    if not is_preemptible:
        problems.update(_above_reservations(total, replicas, policy_bounds))
    if (
        empty_pools
        and not problems
        and not any(_fits(request, replicas, empty_pool) for empty_pool in empty_pools)
    ):
        problems.update(_above_pools(request, total, replicas, empty_pools))
    return problems


def _is(total: int, replicas: int) -> str:
    return f"is {milli_text(total)}{f' for all {replicas} members' if replicas > 1 else ''}"


def _above_limits(
    total: Amounts, replicas: int, policy_bounds: Sequence[PolicyBounds]
) -> Iterator[tuple[str, str]]:
    for level, bounds in enumerate(policy_bounds):
        for what, limit in (("limit", bounds.limit), ("limit per user", bounds.user_limit)):
            for key, amount in total.items():
                if key in limit and amount > limit[key]:
                    yield (
                        f"request.{key}",
                        (
                            f"{_is(amount, replicas)}, but {_whose(level)} has a {what} of "
                            f"{milli_text(limit[key])}"
                        ),
                    )


def _above_reservations(
    total: Amounts, replicas: int, policy_bounds: Sequence[PolicyBounds]
) -> Iterator[tuple[str, str]]:
    for level, bounds in enumerate(policy_bounds):
        named = [key for key in total if key in bounds.reserved]
        if not named:
            yield (
                "is_preemptible",
                (
                    f"must be true: {_whose(level)} reserves nothing of what the task asks for, "
                    "and work that cannot be preempted stays within reservations"
                ),
            )
        for key in named:
            if total[key] > bounds.reserved[key]:
                yield (
                    f"request.{key}",
                    (
                        f"{_is(total[key], replicas)}, but {_whose(level)} reserves "
                        f"{milli_text(bounds.reserved[key])}, and work that cannot be preempted "
                        "stays within reservations"
                    ),
                )


def _above_pools(
    request: Amounts, total: Amounts, replicas: int, empty_pools: Sequence[EmptyPool]
) -> dict[str, str]:
    problems: dict[str, str] = {}
    for key in sorted(total):
        counting = [
            empty_pool
            for empty_pool in empty_pools
            if key in empty_pool.capacity or key not in UNCOUNTED_KEYS
        ]
        if len(counting) < len(empty_pools):
            continue
        most = max(empty_pool.capacity.get(key, 0) for empty_pool in counting)
        if total[key] > most:
            problems[f"request.{key}"] = (
                f"{_is(total[key], replicas)}, but the largest pool of the profile has "
                f"{milli_text(most)}"
            )
    if problems:
        return problems
    return _above_nodes(request, replicas, empty_pools)


def _above_nodes(
    request: Amounts, replicas: int, empty_pools: Sequence[EmptyPool]
) -> dict[str, str]:
    nodes = [node for empty_pool in empty_pools for node in empty_pool.nodes or ()]
    for key in sorted(request):
        most = max((node[key] for node in nodes if key in node), default=0)
        if nodes and most < request[key] and (most or key == "gpu"):
            return {
                f"request.{key}": f"is {milli_text(request[key])} per member, but the largest node "
                f"of these pools has {milli_text(most)}"
            }
    if replicas > 1:
        return {"replicas": f"is {replicas}: no pool of the profile holds so many members at once"}
    return {"request": "fits no pool of the profile with all its keys together"}


def _fits(request: Amounts, replicas: int, empty_pool: EmptyPool) -> bool:
    if any(
        amount * replicas > empty_pool.capacity.get(key, 0)
        for key, amount in request.items()
        if amount and (key in empty_pool.capacity or key not in UNCOUNTED_KEYS)
    ):
        return False
    if empty_pool.nodes is None:
        return True
    # Keys that no node lists, such as licences, are counted for the pool only.
    listed = {"gpu"}.union(*empty_pool.nodes)
    member = {key: amount for key, amount in request.items() if amount and key in listed}
    return sum(_members(member, node) for node in empty_pool.nodes) >= replicas


def _members(member: Amounts, node: Amounts) -> int:
    """How many members an empty node holds."""
    counts = [
        _gpu_members(amount, node.get(key, 0)) if key == "gpu" else node.get(key, 0) // amount
        for key, amount in member.items()
        if key in node or key not in UNCOUNTED_KEYS
    ]
    # A member that asks for nothing fits everywhere, any number of times.
    return min(counts, default=10**9)


def _gpu_members(amount: int, capacity: int) -> int:
    """A fraction fits on one GPU: two of 0.6 need two GPUs."""
    if amount < MILLI:
        return capacity // MILLI * (MILLI // amount)
    return capacity // amount


def _whose(level: int) -> str:
    return "its policy" if level == 0 else "a policy above it"
