"""The step Match: deferred acceptance (Gale and Shapley 1962, the task-optimal form)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace

from apps.allocation.engine.compile.compiled_snapshot import ServingKey
from apps.allocation.engine.quota.holds import Holds
from apps.allocation.engine.state.working_state import PoolOffer, WorkingState
from apps.allocation.engine.steps.offer import Offer


@dataclass(slots=True)
class TentativeMatch:
    """A match that is not final: the pools that it changed, and the assignments in them."""

    tier: int
    holds: Holds | None
    offers: list[Offer]
    pool_offers: dict[int, PoolOffer] = field(default_factory=dict)


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


def withdraw_short(state: WorkingState, match: TentativeMatch, caps: dict[int, int]) -> bool:
    """If an offered group did not fit as a whole, withdraw all offers and lower its cap.

    Args:
        caps: by group index, how many of a group may be offered next time.
    """
    if not _lower_caps(match.offers, caps):
        return False
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
    barrier = barriers.get(pool)
    for number, head in _in_serving_order(offers, pool, here, full):
        if number in full:
            continue
        offer = offers[number]
        members = None
        if barrier is None or offer.group.serving_key(pool, head) < barrier:
            members = pool_offer.take(offer.group, head)
        if members is not None:
            offer.members[here[number]].append(members)
            continue
        full.add(number)
        if pool in barriers:
            key = offer.group.serving_key(pool, head)
            barrier = key if barrier is None else min(barrier, key)
            barriers[pool] = barrier


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
) -> Iterator[tuple[int, int]]:
    """(offer number, head number), best first; in a strict policy none before an earlier task.

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
        _, _, number, head = heap[0]
        yield number, head
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
