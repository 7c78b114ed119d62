"""Tasks that could never run, whatever ends before them; pure.

Amounts are whole thousandths. Nothing here names a policy or pool: the sentences go to people
who may not see them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from apps.core.units import MILLI, milli_text

Amounts = Mapping[str, int]
# A pool that does not list these does not count them; any other key it has none of.
UNCOUNTED_KEYS = frozenset({"cpu", "memory_mb", "slot"})


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What one policy allows: the queue's own first, then its ancestors.

    A key that `limit` or `user_limit` does not name is unlimited.
    """

    reserved: Amounts
    limit: Amounts
    user_limit: Amounts


@dataclass(frozen=True, slots=True)
class Room:
    """An empty pool; `nodes` is None where it has none, or where one did not report yet."""

    capacity: Amounts
    nodes: tuple[Amounts, ...] | None = None


def never_fits(
    *,
    request: Amounts,
    replicas: int,
    is_preemptible: bool,
    ceilings: Sequence[Ceiling],
    rooms: Sequence[Room],
) -> dict[str, str]:
    """Why a task could never run, per field; empty where it can.

    Args:
        request: of one member.
        ceilings: the policy's own, then those of its ancestors.
        rooms: the pools that its profile links to, in its order. A profile without pools is not
            judged: a link may come (the task waits with `no_pool`).

    Source: docs/allocation.md, "Standing".
    """
    total = {key: amount * replicas for key, amount in request.items() if amount}
    problems = dict(_above_limits(total, ceilings))
    if not is_preemptible:
        problems.update(_above_reservations(total, ceilings))
    if rooms and not problems and not any(_fits(request, replicas, room) for room in rooms):
        problems.update(_above_rooms(request, total, replicas, rooms))
    return problems


def _above_limits(total: Amounts, ceilings: Sequence[Ceiling]) -> Iterator[tuple[str, str]]:
    for level, ceiling in enumerate(ceilings):
        for what, limit in (("limit", ceiling.limit), ("limit per person", ceiling.user_limit)):
            for key, amount in total.items():
                if key in limit and amount > limit[key]:
                    yield (
                        f"request.{key}",
                        (
                            f"needs {milli_text(amount)} in all, {_whose(level)} has a {what} of "
                            f"{milli_text(limit[key])}"
                        ),
                    )


def _above_reservations(total: Amounts, ceilings: Sequence[Ceiling]) -> Iterator[tuple[str, str]]:
    for level, ceiling in enumerate(ceilings):
        named = [key for key in total if key in ceiling.reserved]
        if not named:
            yield (
                "is_preemptible",
                (
                    f"must be true: {_whose(level)} reserves nothing of what the task asks for, "
                    "and work that cannot be preempted stays within reservations"
                ),
            )
        for key in named:
            if total[key] > ceiling.reserved[key]:
                yield (
                    f"request.{key}",
                    (
                        f"needs {milli_text(total[key])} in all, {_whose(level)} reserves "
                        f"{milli_text(ceiling.reserved[key])}, and work that cannot be preempted "
                        "stays within reservations"
                    ),
                )


def _above_rooms(
    request: Amounts, total: Amounts, replicas: int, rooms: Sequence[Room]
) -> dict[str, str]:
    problems: dict[str, str] = {}
    for key in sorted(total):
        counting = [room for room in rooms if key in room.capacity or key not in UNCOUNTED_KEYS]
        if len(counting) < len(rooms):
            continue
        most = max(room.capacity.get(key, 0) for room in counting)
        if total[key] > most:
            problems[f"request.{key}"] = (
                f"needs {milli_text(total[key])} in all, the largest pool of the profile has "
                f"{milli_text(most)}"
            )
    if problems:
        return problems
    return _above_nodes(request, replicas, rooms)


def _above_nodes(request: Amounts, replicas: int, rooms: Sequence[Room]) -> dict[str, str]:
    nodes = [node for room in rooms for node in room.nodes or ()]
    for key in sorted(request):
        most = max((node[key] for node in nodes if key in node), default=0)
        if nodes and most < request[key] and (most or key == "gpu"):
            return {
                f"request.{key}": f"needs {milli_text(request[key])} per member, the largest node "
                f"of these pools has {milli_text(most)}"
            }
    if replicas > 1:
        return {"replicas": f"is {replicas}: no pool of the profile holds so many members at once"}
    return {"request": "fits no pool of the profile with all its keys together"}


def _fits(request: Amounts, replicas: int, room: Room) -> bool:
    if any(
        amount * replicas > room.capacity.get(key, 0)
        for key, amount in request.items()
        if amount and (key in room.capacity or key not in UNCOUNTED_KEYS)
    ):
        return False
    if room.nodes is None:
        return True
    # Keys that no node lists, such as licences, are counted for the pool only.
    listed = {"gpu"}.union(*room.nodes)
    member = {key: amount for key, amount in request.items() if amount and key in listed}
    return sum(_members(member, node) for node in room.nodes) >= replicas


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
