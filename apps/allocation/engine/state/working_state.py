"""The working state of one pass: ledger, free capacity, placements, and turned-away groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from apps.allocation.engine.capacity.free_capacity import FreeCapacity
from apps.allocation.engine.capacity.nodes import MemberAssignment, NodeLayout, Nodes
from apps.allocation.engine.compile.compiled_snapshot import (
    CompiledShape,
    CompiledSnapshot,
    GroupState,
    ServingKey,
    StrictKey,
)
from apps.allocation.engine.model.snapshot import Id
from apps.allocation.engine.quota.holds import Holds
from apps.allocation.engine.quota.ledger import Ledger
from apps.allocation.engine.quota.tiers import tier_of, within_limits
from apps.allocation.engine.state.configuration import CompiledConfiguration
from apps.allocation.engine.state.initial_state import InitialState
from apps.allocation.engine.state.memo import Memo

MemberAssignments = tuple[MemberAssignment, ...]

NOTHING_OFFERED: Mapping[int, int] = {}


@dataclass(frozen=True, slots=True)
class PlacedTask:
    """Head `number` of a group, in a pool, with its tier when it was placed."""

    group: GroupState
    number: int
    pool: int
    members: MemberAssignments
    tier: int


@dataclass(slots=True)
class PoolOffer:
    """A pool's free capacity, and what of it is held; `held` None: holds do not bind this tier."""

    pool: int
    capacity: FreeCapacity
    holds: Holds | None
    held: list[int] | None

    def take(self, group: GroupState, number: int) -> MemberAssignments | None:
        """The members of head `number`, or None where it does not fit next to what is held."""
        part: dict[int, int] = {}
        if self.held is not None and self.holds is not None:
            own = self.holds.own.get((group.index, number))
            if own is not None and own[0] == self.pool:
                part = own[1]
            free = self.capacity.free
            for key, amount in group.shape.amounts:
                if free[key] - self.held[key] + part.get(key, 0) < amount:
                    return None
        members = self.capacity.take(group.shape)
        if members is not None and self.held is not None:
            for key, amount in part.items():
                self.held[key] -= amount
        return members


class WorkingState:
    """Everything that changes while one snapshot is decided. Local to one call of `decide`."""

    def __init__(self, configuration: CompiledConfiguration, memo: Memo, at_most: int) -> None:
        compiled = configuration.compiled
        initial = InitialState(configuration, memo)
        self.compiled = compiled
        self.version = configuration.version
        self.memo = memo
        self.shares = configuration.shares
        self.ledger: Ledger = initial.ledger
        self.free_capacities = initial.free_capacities
        self.layouts = initial.layouts
        self.stopping_or_waiting = initial.stopping_or_waiting
        self._initial = initial
        self.placed: list[PlacedTask] = []
        self._at_most = at_most
        self.strict = _strict_groups(compiled.groups)
        # By strict policy what `strict_firsts` found since the last placement of its tasks.
        self._firsts: dict[int, dict[int, StrictKey]] = {}
        # Groups that a pool without backfill turned away, and with which tier; those that found a
        # later pool do not wait any more.
        self.turned: dict[int, dict[int, tuple[GroupState, int]]] = {
            number: {} for number, pool in enumerate(compiled.pools) if not pool.has_backfill
        }
        self.walks = 0
        self.matches = 0
        self.rounds = 0

    @property
    def likely_members(self) -> dict[Id, MemberAssignments]:
        """By task, the likely members of running work whose nodes are not stored."""
        return self._initial.likely_members()

    @property
    def left(self) -> int:
        """How many more tasks may start in this pass."""
        return self._at_most - len(self.placed)

    def pool_offer(self, pool: int, holds: Holds | None) -> PoolOffer:
        held = None
        if holds is not None and pool in holds.total:
            held = list(holds.total[pool])
        return PoolOffer(pool, self.free_capacities[pool].fork(), holds, held)

    def bound(self, group: GroupState, pools: Iterable[int]) -> int:
        """How many tasks of `group` fit into the pools at most."""
        shape = group.shape
        free_capacities = self.free_capacities
        return sum([free_capacities[pool].bound(shape) for pool in pools])

    def could_ever_take(self, pool: int, shape: CompiledShape) -> bool:
        """Whether a task of `shape` fits into the pool while the pool is empty."""
        return self.memo.get(
            ("fits empty", pool, shape.number), self.version, lambda: self._fits_empty(pool, shape)
        )

    def _fits_empty(self, pool: int, shape: CompiledShape) -> bool:
        return _empty_capacity(self.compiled, pool, self.layouts[pool]).bound(shape) > 0

    def turn_away(self, group: GroupState, pools: Iterable[int], tier: int) -> None:
        """Remember a task group that did not fit where nothing below it may overtake it."""
        for pool in pools:
            if pool in self.turned:
                self.turned[pool][group.index] = (group, tier)

    def forget_turned(self, tier: int) -> None:
        """Before groups of `tier` are served: only better ones may block them.

        And those only while they are eligible: what else of their policy was placed meanwhile
        may have used up the reservation or the limit that they counted on.
        """
        for pool, turned in self.turned.items():
            self.turned[pool] = {
                index: entry
                for index, entry in turned.items()
                if entry[1] < tier and self._is_eligible(entry[0], tier - 1)
            }

    def _is_eligible(self, group: GroupState, tier: int) -> bool:
        """Whether the next task of `group` would be offered with this tier or a better one."""
        now = tier_of(self.ledger, group)
        return now is not None and now <= tier and within_limits(self.ledger, group) > 0

    def barrier(
        self, pool: int, tier: int, offered: Mapping[int, int] = NOTHING_OFFERED
    ) -> ServingKey | None:
        """The best place turned away, with at most this tier, by a pool without backfill.

        The pool accepts nothing below it.

        Args:
            offered: by group index, how many of its tasks are offered again themselves.
        """
        keys = [
            group.serving_key(pool, group.placed_count + offered.get(index, 0))
            for index, (group, turned_with) in self.turned.get(pool, {}).items()
            if turned_with <= tier
            and group.placed_count + offered.get(index, 0) < len(group.queued.heads)
        ]
        return min(keys, default=None)

    def may_enter(self, key: ServingKey, pool: int, tier: int) -> bool:
        """Whether no group of this or a better tier was turned away before the task of this key.

        For the time after a match: by current usage.
        """
        return not any(
            turned_with <= tier
            and other.waiting > 0
            and other.serving_key(pool, other.placed_count) < key
            and self._is_eligible(other, tier)
            for other, turned_with in self.turned.get(pool, {}).values()
        )

    def place(self, group: GroupState, pool: int, members: MemberAssignments, tier: int) -> None:
        """Place the next head of `group` for good; ledger and capacity are charged already."""
        number = group.placed_count
        group.placed_count += 1
        self._firsts.pop(group.policy, None)
        self.placed.append(PlacedTask(group, number, pool, members, tier))

    def placements_in_order(self) -> dict[Id, Id]:
        """Give the placements in the earlier pools to the earlier tasks of each group.

        A later one may have been placed by preemption, after the earlier ones were placed.

        Returns:
            By task, the one that has its placement now.
        """
        by_group: dict[int, list[int]] = {}
        for index, placed in enumerate(self.placed):
            if not placed.group.is_strict:
                by_group.setdefault(placed.group.index, []).append(index)
        instead: dict[Id, Id] = {}
        for indices in by_group.values():
            placed_tasks = [self.placed[index] for index in indices]
            placed_tasks.sort(key=lambda one: (one.group.pools.index(one.pool), one.number))
            for index, placed, number in zip(
                indices, placed_tasks, sorted(one.number for one in placed_tasks), strict=True
            ):
                instead[placed.group.head(placed.number).task] = placed.group.head(number).task
                self.placed[index] = replace(placed, number=number)
        return instead

    def blocked_pools(self, group: GroupState, number: int) -> set[int]:
        """Pools where strict order does not let head `number` of `group` start yet."""
        if not group.is_strict:
            return set()
        firsts = self._firsts.get(group.policy)
        if firsts is None:
            firsts = self._firsts[group.policy] = self.strict_firsts(group.policy)
        key = group.strict_key(number)
        return {pool for pool, first in firsts.items() if first < key}

    def strict_firsts(
        self, policy: int, ahead: Mapping[int, int] = NOTHING_OFFERED
    ) -> dict[int, StrictKey]:
        """By pool, the first waiting task of a strict policy that has it in its list.

        Nothing behind it starts there. Of a group whose heads are all assigned while more of it
        wait, it is the last head.

        Args:
            ahead: by group index, how many of its tasks are assigned beyond `placed_count`.
        """
        found: dict[int, StrictKey] = {}
        for group in self.strict[policy]:
            first = group.placed_count + ahead.get(group.index, 0)
            if first >= len(group.queued.heads):
                if group.queued.count <= first:
                    continue
                first -= 1
            key = group.strict_key(first)
            for pool in group.pools:
                if pool not in found or key < found[pool]:
                    found[pool] = key
        return found


def _empty_capacity(
    compiled: CompiledSnapshot, number: int, layout: NodeLayout | None
) -> FreeCapacity:
    find_nodes = partial(Nodes.of, layout, layout.empty()) if layout else None
    return FreeCapacity(list(compiled.capacities[number]), find_nodes)


def _strict_groups(groups: list[GroupState]) -> dict[int, list[GroupState]]:
    found: dict[int, list[GroupState]] = {}
    for group in groups:
        if group.is_strict and group.queued.heads:
            found.setdefault(group.policy, []).append(group)
    return found
