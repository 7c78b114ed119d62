"""Step 2 of a pass: deferred acceptance (Gale and Shapley 1962, the task-optimal form)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace

from apps.allocation.engine.compiled import ServingKey, Work
from apps.allocation.engine.holds import Holds
from apps.allocation.engine.offering import Unit, offer
from apps.allocation.engine.working import Front, Pass


@dataclass(slots=True)
class Trial:
    """A match that is not final: the pools that it changed, and who sits where."""

    standing: int
    holds: Holds | None
    units: list[Unit]
    fronts: dict[int, Front] = field(default_factory=dict)


def match_offers(state: Pass, standing: int, candidates: list[Work], holds: Holds | None) -> Trial:
    """Match until everything offered has found room; the ledger is charged with it.

    Of a run that found less room than it offered, only what fitted is offered again, so that its
    budget goes to the next in the policy.
    """
    caps: dict[int, int] = {}
    while True:
        state.forget_turned(standing)
        units = offer(state, standing, candidates, caps)
        trial = _match(state, Trial(standing, holds, units))
        if not _lower_caps(units, caps):
            return trial
        for unit in units:
            state.ledger.charge(unit.work, -unit.count)


def _lower_caps(units: list[Unit], caps: dict[int, int]) -> bool:
    found: dict[int, int] = {}
    short: set[int] = set()
    for unit in units:
        index = unit.work.index
        found[index] = found.get(index, 0) + unit.found
        if unit.found < unit.count:
            short.add(index)
    for index in short:
        caps[index] = found[index]
    return bool(short)


def _match(state: Pass, trial: Trial) -> Trial:
    """All proposals of a step at once, until nobody is turned away any more."""
    if not trial.units:
        return trial
    state.matches += 1
    barriers = _barriers(state, trial)
    present: dict[int, dict[int, int]] = {}
    coming: dict[int, list[tuple[int, int, int]]] = {}
    for number, unit in enumerate(trial.units):
        coming.setdefault(unit.pools[0], []).append((number, 0, unit.count))
    while coming:
        state.rounds += 1
        turned: dict[int, list[tuple[int, int, int]]] = {}
        for pool in sorted(coming):
            here = present.setdefault(pool, {})
            for number, place, count in coming[pool]:
                here[number] = place
                trial.units[number].kept[place] += count
            _serve(state, trial, pool, here, barriers)
            for number, place, count in _turned_away(trial.units, here):
                pools = trial.units[number].pools
                if place + 1 < len(pools):
                    turned.setdefault(pools[place + 1], []).append((number, place + 1, count))
        coming = turned
    return trial


def _barriers(state: Pass, trial: Trial) -> dict[int, ServingKey | None]:
    offered: dict[int, int] = {}
    for unit in trial.units:
        offered[unit.work.index] = offered.get(unit.work.index, 0) + unit.count
    return {pool: state.barrier(pool, trial.standing, offered) for pool in state.turned}


def _serve(
    state: Pass,
    trial: Trial,
    pool: int,
    here: dict[int, int],
    barriers: dict[int, ServingKey | None],
) -> None:
    """Let a pool go through all that propose to it, in serving order, and keep what fits."""
    front = state.front(pool, trial.holds)
    trial.fronts[pool] = front
    units = trial.units
    for number, place in here.items():
        units[number].seats[place] = []
    full: set[int] = set()
    barrier = barriers.get(pool)
    for number, head in _in_serving_order(units, pool, here, full):
        if number in full:
            continue
        unit = units[number]
        seats = None
        if barrier is None or unit.work.serving_key(pool, head) < barrier:
            seats = front.take(unit.work, head)
        if seats is not None:
            unit.seats[here[number]].append(seats)
            continue
        full.add(number)
        if pool in barriers:
            key = unit.work.serving_key(pool, head)
            barrier = key if barrier is None else min(barrier, key)
            barriers[pool] = barrier


def _turned_away(units: list[Unit], here: dict[int, int]) -> list[tuple[int, int, int]]:
    found = []
    for number in sorted(here):
        place = here[number]
        unit = units[number]
        count = unit.kept[place] - len(unit.seats[place])
        if count:
            unit.kept[place] -= count
            found.append((number, place, count))
    return found


def _in_serving_order(
    units: list[Unit], pool: int, here: dict[int, int], full: set[int]
) -> Iterator[tuple[int, int]]:
    """(unit number, head number), best first; in a strict policy nobody before an earlier task.

    Equal tasks come one after another: none once their unit is in `full`.
    """
    # Of units of strict policies all heads, of the others the next one.
    heap: list[tuple[ServingKey, int, int, int]] = []
    strict: dict[int, list[tuple[ServingKey, int, int]]] = {}
    ends: dict[int, int] = {}
    for number, place in here.items():
        unit = units[number]
        first = unit.first_at(place)
        end = first + unit.kept[place]
        if unit.work.is_strict:
            strict.setdefault(unit.work.policy, []).extend(
                (unit.work.serving_key(pool, head), number, head) for head in range(first, end)
            )
        elif first < end:
            heap.append((unit.work.serving_key(pool, first), 0, number, first))
            ends[number] = end
    for line in strict.values():
        heap += _in_strict_order(units, line)
    heapify(heap)
    while heap:
        _, _, number, head = heap[0]
        yield number, head
        if number in full or head + 1 >= ends.get(number, 0):
            heappop(heap)
        else:
            key = units[number].work.serving_key(pool, head + 1)
            heapreplace(heap, (key, 0, number, head + 1))


def _in_strict_order(
    units: list[Unit], line: list[tuple[ServingKey, int, int]]
) -> Iterator[tuple[ServingKey, int, int, int]]:
    """With the place that strict order leaves them: not before any earlier task's place."""
    line.sort(key=lambda entry: units[entry[1]].work.strict_key(entry[2]))
    latest: ServingKey | None = None
    for turn, (key, number, head) in enumerate(line):
        latest = key if latest is None else max(latest, key)
        yield latest, turn, number, head
