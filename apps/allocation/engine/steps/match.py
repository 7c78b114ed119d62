"""The step Match: deferred acceptance (Gale and Shapley 1962, the task-optimal form)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from operator import itemgetter

from apps.allocation.engine.capacity.free_capacity import FreeCapacity
from apps.allocation.engine.compile.compiled_snapshot import CompiledShape, GroupState, ServingKey
from apps.allocation.engine.quota.holds import Holds
from apps.allocation.engine.state.working_state import PoolOffer, WorkingState
from apps.allocation.engine.steps.offer import Offer

# How often a match is made again whatever group the budget goes to. From then on it goes to none
# that all pools would turn away: a policy may have thousands of them.
PLAIN_MATCHES = 16


@dataclass(slots=True)
class Refusals:
    """What did not fit when a pool last went through its proposals.

    By shape number the place of the first such task, and what was free, on which nodes, at the
    place of each. `latest` is the place of the last task that fitted, `barrier` the place below
    which a pool without backfill accepts nothing.
    """

    first: dict[int, ServingKey] = field(default_factory=dict)
    free: list[tuple[ServingKey, FreeCapacity]] = field(default_factory=list)
    latest: ServingKey | None = None
    barrier: ServingKey | None = None

    def note(self, place: ServingKey, shape: CompiledShape, capacity: FreeCapacity) -> None:
        self.first.setdefault(shape.number, place)
        if not self.free or self.free[-1][1].free != capacity.free:
            self.free.append((place, capacity.record()))

    def exclude(self, shape: CompiledShape, key: ServingKey) -> bool:
        """Whether a task at `key` would not fit: what is free shrinks from place to place."""
        first = self.first.get(shape.number)
        if first is not None and first < key:
            return True
        before = bisect_left(self.free, key, key=itemgetter(0))
        return before > 0 and not self.free[before - 1][1].bound(shape)


@dataclass(slots=True)
class TentativeMatch:
    """A match that is not final: the pools that it changed, and the assignments in them."""

    tier: int
    holds: Holds | None
    offers: list[Offer]
    pool_offers: dict[int, PoolOffer] = field(default_factory=dict)
    # By pool, of the latest time that it went through its proposals.
    refusals: dict[int, Refusals] = field(default_factory=dict)


def match_offers(
    state: WorkingState, tier: int, offers: list[Offer], holds: Holds | None
) -> TentativeMatch:
    """All proposals of a step at once, until no pool turns a task away."""
    match = TentativeMatch(tier, holds, offers)
    if not offers:
        return match
    state.matches += 1
    barriers = _barriers(state, match)
    present: dict[int, dict[int, int]] = {}
    coming: dict[int, list[tuple[int, int, int]]] = {}
    for number, offer in enumerate(offers):
        coming.setdefault(offer.pools[0], []).append((number, 0, offer.count))
    while coming:
        state.rounds += 1
        turned: dict[int, list[tuple[int, int, int]]] = {}
        for pool in sorted(coming):
            here = present.setdefault(pool, {})
            for number, place, count in coming[pool]:
                here[number] = place
                offers[number].accepted[place] += count
            _serve(state, match, pool, here, barriers)
            for number, place, count in _turned_away(offers, here):
                pools = offers[number].pools
                if place + 1 < len(pools):
                    turned.setdefault(pools[place + 1], []).append((number, place + 1, count))
        coming = turned
    return match


def withdraw_short(
    state: WorkingState,
    match: TentativeMatch,
    eligible: list[GroupState],
    caps: dict[int, int],
    *,
    made: int,
) -> bool:
    """If an offered group did not fit as a whole, withdraw all offers and lower its cap.

    The rest of its budget goes to the next group of the policy; after `PLAIN_MATCHES` to the next
    that not all pools are known to turn away.

    Args:
        made: how many matches this step has made.
        caps: by group index, how many of a group may be offered next time.
    """
    if not _lower_caps(match.offers, caps):
        return False
    if made >= PLAIN_MATCHES:
        _rule_out(state, match, eligible, caps)
    for offer in match.offers:
        state.ledger.charge(offer.group, -offer.count)
    return True


def _lower_caps(offers: list[Offer], caps: dict[int, int]) -> bool:
    found: dict[int, int] = {}
    short: set[int] = set()
    for offer in offers:
        index = offer.group.index
        found[index] = found.get(index, 0) + offer.found
        if offer.found < offer.count:
            short.add(index)
    for index in short:
        caps[index] = found[index]
    return bool(short)


def _rule_out(
    state: WorkingState, match: TentativeMatch, eligible: list[GroupState], caps: dict[int, int]
) -> None:
    """Cap each group whose next task every pool of its list would turn away too.

    Only where budget became free. Offered one after the other in its place, such groups would
    cost a match each.
    """
    offered: dict[int, int] = {}
    trees: set[int] = set()
    for offer in match.offers:
        offered[offer.group.index] = offered.get(offer.group.index, 0) + offer.count
        if offer.found < offer.count:
            trees.add(offer.group.chain[0])
    holding = {index for index, _ in match.holds.own} if match.holds else set()
    for group in eligible:
        index = group.index
        if index in caps or index in holding or group.is_strict or group.chain[0] not in trees:
            continue
        count = offered.get(index, 0)
        head = group.placed_count + count
        if head < len(group.queued.heads) and all(
            _refuses(state, match, pool, group, head) for pool in group.pools
        ):
            caps[index] = count


def _refuses(
    state: WorkingState, match: TentativeMatch, pool: int, group: GroupState, head: int
) -> bool:
    """Whether a pool would turn `head` away, and accept the same tasks as without it."""
    refusals = match.refusals.get(pool)
    if refusals is None:
        return pool not in state.turned and not state.free_capacities[pool].bound(group.shape)
    key = group.serving_key(pool, head)
    if pool in state.turned:
        return refusals.barrier is not None and refusals.barrier < key
    if refusals.exclude(group.shape, key):
        return True
    is_last = refusals.latest is None or refusals.latest < key
    return is_last and not match.pool_offers[pool].capacity.bound(group.shape)


def _barriers(state: WorkingState, match: TentativeMatch) -> dict[int, ServingKey | None]:
    offered: dict[int, int] = {}
    for offer in match.offers:
        offered[offer.group.index] = offered.get(offer.group.index, 0) + offer.count
    return {pool: state.barrier(pool, match.tier, offered) for pool in state.turned}


def _serve(
    state: WorkingState,
    match: TentativeMatch,
    pool: int,
    here: dict[int, int],
    barriers: dict[int, ServingKey | None],
) -> None:
    """Let a pool go through all that propose to it, in serving order, and keep what fits."""
    pool_offer = state.pool_offer(pool, match.holds)
    match.pool_offers[pool] = pool_offer
    offers = match.offers
    for number, place in here.items():
        offers[number].members[place] = []
    full: set[int] = set()
    refusals = match.refusals[pool] = Refusals()
    barrier = barriers.get(pool)
    for turn, number, head in _in_serving_order(offers, pool, here, full):
        if number in full:
            continue
        offer = offers[number]
        members = None
        if barrier is None or offer.group.serving_key(pool, head) < barrier:
            members = pool_offer.take(offer.group, head)
        if members is not None:
            offer.members[here[number]].append(members)
            refusals.latest = turn
            continue
        full.add(number)
        refusals.note(turn, offer.group.shape, pool_offer.capacity)
        if pool in barriers:
            key = offer.group.serving_key(pool, head)
            barrier = key if barrier is None else min(barrier, key)
            barriers[pool] = barrier
    refusals.barrier = barrier


def _turned_away(offers: list[Offer], here: dict[int, int]) -> list[tuple[int, int, int]]:
    found = []
    for number in sorted(here):
        place = here[number]
        offer = offers[number]
        count = offer.accepted[place] - len(offer.members[place])
        if count:
            offer.accepted[place] -= count
            found.append((number, place, count))
    return found


def _in_serving_order(
    offers: list[Offer], pool: int, here: dict[int, int], full: set[int]
) -> Iterator[tuple[ServingKey, int, int]]:
    """(place in the order, offer number, head number); strict policies in their own order.

    Equal tasks follow one another: none once their offer is in `full`.
    """
    # Of offers of strict policies all heads, of the others the next one.
    heap: list[tuple[ServingKey, int, int, int]] = []
    strict: dict[int, list[tuple[ServingKey, int, int]]] = {}
    ends: dict[int, int] = {}
    for number, place in here.items():
        offer = offers[number]
        first = offer.first_at(place)
        end = first + offer.accepted[place]
        if offer.group.is_strict:
            strict.setdefault(offer.group.policy, []).extend(
                (offer.group.serving_key(pool, head), number, head) for head in range(first, end)
            )
        elif first < end:
            heap.append((offer.group.serving_key(pool, first), 0, number, first))
            ends[number] = end
    for heads in strict.values():
        heap += _in_strict_order(offers, heads)
    heapify(heap)
    while heap:
        turn, _, number, head = heap[0]
        yield turn, number, head
        if number in full or head + 1 >= ends.get(number, 0):
            heappop(heap)
        else:
            key = offers[number].group.serving_key(pool, head + 1)
            heapreplace(heap, (key, 0, number, head + 1))


def _in_strict_order(
    offers: list[Offer], heads: list[tuple[ServingKey, int, int]]
) -> Iterator[tuple[ServingKey, int, int, int]]:
    """With the place that strict order leaves them: none before any earlier task's place."""
    heads.sort(key=lambda entry: offers[entry[1]].group.strict_key(entry[2]))
    latest: ServingKey | None = None
    for turn, (key, number, head) in enumerate(heads):
        latest = key if latest is None else max(latest, key)
        yield latest, turn, number, head
