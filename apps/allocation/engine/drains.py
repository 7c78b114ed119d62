"""Which victims have to be gone before what was placed on their room can start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from apps.allocation.engine.claims import Victim
from apps.allocation.engine.moving import Moved
from apps.allocation.engine.snapshot import Id, Pool
from apps.allocation.engine.working import Pass, Placed

# A pool and a key of it, by their numbers.
_Account = tuple[int, int]


class Drains:
    """Victims in order of their ids: their room is not there yet for whoever was placed on it."""

    def __init__(self, state: Pass, victims: Sequence[Victim | Moved]) -> None:
        by_pool: dict[int, list[Id]] = {}
        self._by_node: dict[tuple[int, int], list[Id]] = {}
        self._by_taker: dict[tuple[int, Id], list[Id]] = {}
        for victim in sorted(victims, key=lambda one: one.held.task):
            pool, task = victim.flock.pool, victim.held.task
            by_pool.setdefault(pool, []).append(task)
            self._by_taker.setdefault((pool, victim.beneficiary), []).append(task)
            for node in dict.fromkeys(node for node, _ in victim.seats):
                self._by_node.setdefault((pool, node), []).append(task)
        self._by_pool = {pool: tuple(tasks) for pool, tasks in by_pool.items()}
        self._by_total = _waiting_for_totals(state, victims)

    def waited_for(self, placed: Placed, task: Id) -> tuple[Id, ...]:
        """Its own victims, and in their pool those on its nodes, and those without which the pool
        has too little of what no node bounds; without nodes nobody can tell whose room it is, so
        it waits for all of them.
        """
        pool = placed.pool
        if pool not in self._by_pool:
            return ()
        if not placed.seats:
            return self._by_pool[pool]
        found = dict.fromkeys(self._by_taker.get((pool, task), ()))
        for node, _ in placed.seats:
            found.update(dict.fromkeys(self._by_node.get((pool, node), ())))
        found.update(dict.fromkeys(self._by_total.get(task, ())))
        return tuple(sorted(found))


def _waiting_for_totals(state: Pass, victims: Sequence[Victim | Moved]) -> dict[Id, tuple[Id, ...]]:
    """By task that is placed, victims that hold of a key what its pool is short of.

    In the order of the plan each takes of what is free without any victim going, as long as that
    lasts.
    """
    holding = _by_key([one for one in victims if isinstance(one, Victim)])
    budgets = _short_budgets(state, holding)
    found: dict[Id, tuple[Id, ...]] = {}
    for at, placed, amount in _wanted(state, budgets):
        if budgets[at] >= amount:
            budgets[at] -= amount
        else:
            task = placed.work.head(placed.number).task
            found[task] = (*found.get(task, ()), *(one.held.task for one in holding[at]))
    return found


def _by_key(victims: Iterable[Victim]) -> dict[_Account, list[Victim]]:
    """Who gives back of each key. Moved work does not: it holds in its pool what it held."""
    found: dict[_Account, list[Victim]] = {}
    for victim in victims:
        for key, _ in victim.flock.shape.amounts:
            found.setdefault((victim.flock.pool, key), []).append(victim)
    return found


def _short_budgets(state: Pass, holding: Mapping[_Account, list[Victim]]) -> dict[_Account, int]:
    """What was free when the pass began, of keys of which more than that was placed."""
    budgets: dict[_Account, int] = {}
    for (pool, key), victims in holding.items():
        leaving = sum(dict(one.flock.shape.amounts)[key] for one in victims)
        free = state.rooms[pool].free[key] - leaving
        compiled = state.compiled
        if free < 0 and _is_bound_by_pool(compiled.pools[pool], compiled.keys[key]):
            budgets[pool, key] = free
    for at, _, amount in list(_wanted(state, budgets)):
        budgets[at] += amount
    return budgets


def _wanted(
    state: Pass, accounts: Mapping[_Account, int]
) -> Iterator[tuple[_Account, Placed, int]]:
    """What was placed of these keys, in the order of the plan."""
    for placed in state.placed if accounts else ():
        for key, amount in placed.work.shape.amounts:
            if (placed.pool, key) in accounts:
                yield (placed.pool, key), placed, amount


def _is_bound_by_pool(pool: Pool, key: str) -> bool:
    """Whether the nodes, each by itself, could give out more of it than the pool."""
    amounts = [node.capacity.as_dict().get(key) for node in pool.nodes]
    listed = [amount for amount in amounts if amount is not None]
    return len(listed) < len(amounts) or sum(listed) > pool.capacity.get(key)
