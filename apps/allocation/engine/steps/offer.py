"""The step Offer: each policy offers its queued tasks of one tier, within its budgets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from apps.allocation.engine.compile.compiled_snapshot import GroupState, ServingKey
from apps.allocation.engine.quota.tiers import budget, is_within_budgets
from apps.allocation.engine.state.working_state import MemberAssignments, WorkingState

# Place across pools; those that strict order leaves at the same place, in strict order.
Turn = tuple[ServingKey, int]


@dataclass(slots=True)
class Offer:
    """`count` equal tasks of a group from head `first` on, offered to `pools` in this order.

    `accepted` and `members` say, by place in `pools`, how many are assigned there, and where.
    `turns` are those that strict order leaves to tasks of a strict policy, one for each.
    """

    group: GroupState
    first: int
    count: int
    pools: tuple[int, ...]
    turns: list[Turn] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    members: list[list[MemberAssignments]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.accepted = [0] * len(self.pools)
        self.members = [[] for _ in self.pools]

    @property
    def found(self) -> int:
        return sum(self.accepted)

    def first_at(self, place: int) -> int:
        """The number of the first head that is assigned, or proposes, to the pool at `place`."""
        return self.first + sum(self.accepted[:place])

    def turn(self, head: int) -> Turn:
        """Lower for a head that is offered earlier."""
        return self.turns[head - self.first] if self.turns else (self.group.across_key(head), 0)


def make_offers(
    state: WorkingState, tier: int, eligible: list[GroupState], caps: dict[int, int]
) -> list[Offer]:
    """What is offered, charged to the ledger already.

    Args:
        eligible: groups whose next task has this tier.
        caps: by group index, how many of a group may be offered; the others did not fit.
    """
    state.forget_turned(tier)
    return _OfferBuilder(state, tier, caps).build(eligible)


class _OfferBuilder:
    def __init__(self, state: WorkingState, tier: int, caps: dict[int, int]) -> None:
        self.state = state
        self.tier = tier
        self.caps = caps
        self.offers: list[Offer] = []
        self.offered: dict[int, int] = {}
        self.strict_orders: dict[int, _StrictOrder] = {}
        # By group index.
        self._latest: dict[int, Offer] = {}

    def build(self, eligible: list[GroupState]) -> list[Offer]:
        """Only groups below the same top policy share budgets: each tree is offered by itself."""
        trees: dict[int, list[GroupState]] = {}
        for group in eligible:
            trees.setdefault(group.chain[0], []).append(group)
        for groups in trees.values():
            if not self._offer_all(groups):
                self._offer_in_order(groups)
        return self.offers

    def _offer_all(self, groups: list[GroupState]) -> bool:
        """Offer all that may fit, if the budgets suffice whatever the order is."""
        if self.state.turned or any(group.is_strict for group in groups):
            return False
        ledger = self.state.ledger
        counts = [min(group.waiting, self._free_capacity(group, group.pools)) for group in groups]
        offers = [(group, count) for group, count in zip(groups, counts, strict=True) if count > 0]
        for group, count in offers:
            ledger.charge(group, count)
        if all(is_within_budgets(ledger, group, self.tier) for group, _ in offers):
            self.offers += [
                Offer(group, group.placed_count, count, group.pools) for group, count in offers
            ]
            return True
        for group, count in offers:
            ledger.charge(group, -count)
        return False

    def _offer_in_order(self, eligible: list[GroupState]) -> None:
        """Through all heads in the order across pools, as many at once as no group interrupts.

        The tasks of a strict policy come in strict order, none before the place of an earlier one.
        """
        groups = {group.index: group for group in eligible if not group.is_strict}
        heap: list[tuple[ServingKey, int, int]] = [
            (group.across_key(group.placed_count), index, group.placed_count)
            for index, group in groups.items()
            if group.waiting > 0
        ]
        wanted = {group.index for group in eligible if group.is_strict}
        for policy in sorted({group.policy for group in eligible if group.is_strict}):
            order = _StrictOrder(self.state.strict[policy], wanted)
            self.strict_orders[policy] = order
            heap += [(key, -1 - policy, 0) for key in order.places()]
        heapify(heap)
        while heap:
            key, index, number = heappop(heap)
            if index < 0:
                self._offer_strict(self.strict_orders[-1 - index], key)
                continue
            group = groups[index]
            stop = _uninterrupted(group, number, heap[0][0] if heap else None)
            if self._offer_many(group, stop - number) and stop < len(group.queued.heads):
                heappush(heap, (group.across_key(stop), index, stop))

    def _offer_many(self, group: GroupState, wanted: int) -> bool:
        """Offer the next `wanted` of a group; False when it ends before."""
        before = self.offered.get(group.index, 0)
        capacity = self._free_capacity(group, group.pools) - before
        # One more than can fit: is that one eligible at all?
        count = budget(self.state.ledger, group, self.tier, min(wanted, capacity + 1))
        if count > capacity:
            self.state.turn_away(group, group.pools, self.tier)
            count = capacity
        if count > 0:
            self._charge(group, count, group.pools, before)
        return count == wanted

    def _free_capacity(self, group: GroupState, pools: tuple[int, ...]) -> int:
        """How many of a group can be worth offering."""
        bound = self.state.bound(group, pools)
        return min(bound, self.caps.get(group.index, bound))

    def _offer_strict(self, order: _StrictOrder, key: ServingKey) -> None:
        """Offer the next task of a strict policy where no earlier one still waits."""
        group = order.next()
        if group is None:
            return
        pools = tuple(pool for pool in group.pools if pool not in order.blocked)
        before = self.offered.get(group.index, 0)
        is_eligible = (
            group.index in order.wanted and budget(self.state.ledger, group, self.tier, 1) > 0
        )
        if is_eligible and self._free_capacity(group, pools) > before:
            self._charge(group, 1, pools, before).turns.append((key, order.at))
            return
        if is_eligible:
            self.state.turn_away(group, pools, self.tier)
        order.block(group)

    def _charge(self, group: GroupState, count: int, pools: tuple[int, ...], before: int) -> Offer:
        """Offer `count` more tasks of a group to `pools`. Returns the offer that they belong to."""
        self.state.ledger.charge(group, count)
        self.offered[group.index] = before + count
        offer = self._latest.get(group.index)
        if offer is not None and offer.pools == pools:
            offer.count += count
        else:
            offer = Offer(group, group.placed_count + before, count, pools)
            self._latest[group.index] = offer
            self.offers.append(offer)
        return offer


class _StrictOrder:
    """The waiting tasks of a strict policy in their order, and the pools closed to the rest."""

    def __init__(self, groups: list[GroupState], wanted: set[int]) -> None:
        self.wanted = wanted
        self.blocked: set[int] = set()
        self._waiting: set[int] = set()
        self._tasks = sorted(
            (
                (group.strict_key(number), group.index, number, group)
                for group in groups
                for number in range(group.placed_count, len(group.queued.heads))
            ),
            key=lambda entry: entry[:2],
        )
        self.at = 0

    def places(self) -> Iterator[ServingKey]:
        """The place across pools of each task in turn."""
        latest: ServingKey | None = None
        for _, _, number, group in self._tasks:
            key = group.across_key(number)
            latest = key if latest is None else max(latest, key)
            yield latest

    def next(self) -> GroupState | None:
        """The next one, None where it waits because an equal one before it does."""
        _, index, _, group = self._tasks[self.at]
        self.at += 1
        return None if index in self._waiting else group

    def block(self, group: GroupState) -> None:
        """`group` waits: neither later tasks nor its own others start in its pools."""
        self.blocked.update(group.pools)
        self._waiting.add(group.index)


def _uninterrupted(group: GroupState, number: int, key: ServingKey | None) -> int:
    """Up to which head no other group's next one, at `key`, comes in between."""
    heads = group.queued.heads
    if key is None or group.across < key[:4]:
        return len(heads)
    return max(
        number + 1, bisect_left(heads, key[4:], key=lambda head: (head.submitted_us, head.task))
    )
