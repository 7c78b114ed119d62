"""Which victims have to end before the tasks that were placed on their capacity can start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from apps.allocation.engine.model.snapshot import Id, PoolSnapshot
from apps.allocation.engine.state.working_state import PlacedTask, WorkingState
from apps.allocation.engine.steps.preemption.consolidation import Relocation
from apps.allocation.engine.steps.preemption.entitlement import ChosenVictim

# A pool and a key of it, by their numbers.
_Account = tuple[int, int]


class Drains:
    """Victims in order of their ids: their capacity is not free yet for the tasks placed on it."""

    def __init__(self, state: WorkingState, victims: Sequence[ChosenVictim | Relocation]) -> None:
        by_pool: dict[int, list[Id]] = {}
        self._by_node: dict[tuple[int, int], list[Id]] = {}
        self._by_beneficiary: dict[tuple[int, Id], list[Id]] = {}
        for victim in sorted(victims, key=lambda one: one.running_task.task):
            pool, task = victim.candidate.pool, victim.running_task.task
            by_pool.setdefault(pool, []).append(task)
            self._by_beneficiary.setdefault((pool, victim.beneficiary), []).append(task)
            for node in dict.fromkeys(node for node, _ in victim.members):
                self._by_node.setdefault((pool, node), []).append(task)
        self._by_pool = {pool: tuple(tasks) for pool, tasks in by_pool.items()}
        self._by_total = _waiting_for_totals(state, victims)

    def waited_for(self, placed: PlacedTask, task: Id) -> tuple[Id, ...]:
        """Its own victims; in their pool, those on its nodes and those without which the pool is
        short of a key that no node bounds. Without nodes it cannot be known whose capacity a task
        uses, so it waits for all of them.
        """
        pool = placed.pool
        if pool not in self._by_pool:
            return ()
        if not placed.members:
            return self._by_pool[pool]
        found = dict.fromkeys(self._by_beneficiary.get((pool, task), ()))
        for node, _ in placed.members:
            found.update(dict.fromkeys(self._by_node.get((pool, node), ())))
        found.update(dict.fromkeys(self._by_total.get(task, ())))
        return tuple(sorted(found))


def _waiting_for_totals(
    state: WorkingState, victims: Sequence[ChosenVictim | Relocation]
) -> dict[Id, tuple[Id, ...]]:
    """By placed task, victims that hold of a key what its pool is short of.

    In the order of the plan, each task uses what is free before any victim ends, as long as that
    lasts.
    """
    victims_by_key = _by_key([one for one in victims if isinstance(one, ChosenVictim)])
    budgets = _short_budgets(state, victims_by_key)
    found: dict[Id, tuple[Id, ...]] = {}
    for at, placed, amount in _wanted(state, budgets):
        if budgets[at] >= amount:
            budgets[at] -= amount
        else:
            task = placed.group.head(placed.number).task
            found[task] = (
                *found.get(task, ()),
                *(one.running_task.task for one in victims_by_key[at]),
            )
    return found


def _by_key(victims: Iterable[ChosenVictim]) -> dict[_Account, list[ChosenVictim]]:
    """The victims that release each key. Moved work does not: it holds in its pool what it held."""
    found: dict[_Account, list[ChosenVictim]] = {}
    for victim in victims:
        for key, _ in victim.candidate.shape.amounts:
            found.setdefault((victim.candidate.pool, key), []).append(victim)
    return found


def _short_budgets(
    state: WorkingState, victims_by_key: Mapping[_Account, list[ChosenVictim]]
) -> dict[_Account, int]:
    """What was free when the pass began, of keys of which more than that was placed."""
    budgets: dict[_Account, int] = {}
    for (pool, key), victims in victims_by_key.items():
        leaving = sum(dict(one.candidate.shape.amounts)[key] for one in victims)
        free = state.free_capacities[pool].free[key] - leaving
        compiled = state.compiled
        if free < 0 and _is_bound_by_pool(compiled.pools[pool], compiled.keys[key]):
            budgets[pool, key] = free
    for at, _, amount in list(_wanted(state, budgets)):
        budgets[at] += amount
    return budgets


def _wanted(
    state: WorkingState, accounts: Mapping[_Account, int]
) -> Iterator[tuple[_Account, PlacedTask, int]]:
    """What was placed of these keys, in the order of the plan."""
    for placed in state.placed if accounts else ():
        for key, amount in placed.group.shape.amounts:
            if (placed.pool, key) in accounts:
                yield (placed.pool, key), placed, amount


def _is_bound_by_pool(pool: PoolSnapshot, key: str) -> bool:
    """Whether the nodes, each by itself, could give out more of it than the pool."""
    amounts = [node.capacity.as_dict().get(key) for node in pool.nodes]
    listed = [amount for amount in amounts if amount is not None]
    return len(listed) < len(amounts) or sum(listed) > pool.capacity.get(key)
