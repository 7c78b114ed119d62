"""The state in which a pass begins: what running work holds, draining capacity counted once.

Work that stops for a beneficiary and the beneficiary itself hold, in every account, the larger of
the two: the beneficiary uses the capacity of its victims. A chain of beneficiaries is followed to
its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, is_

from apps.allocation.engine.capacity.free_capacity import FreeCapacity
from apps.allocation.engine.capacity.nodes import MemberAssignment, NodeLayout, Nodes, State
from apps.allocation.engine.model.quantities import WHOLE
from apps.allocation.engine.model.snapshot import Id, MemberPlacement, RunningGroup, RunningTask
from apps.allocation.engine.quota.ledger import Ledger
from apps.allocation.engine.state.configuration import CompiledConfiguration
from apps.allocation.engine.state.memo import Memo

# Accounts of capacity, not of what policies use.
CAPACITY_ACCOUNTS = frozenset({"pool", "scalar", "gpu"})
# ("usage", policy, key) and the like, with thousandths.
Account = tuple[str | int, ...]

# What running work whose GPUs the snapshot names leaves free on the nodes, and the other tasks.
_KnownStates = tuple[tuple[State, ...], tuple[tuple[RunningGroup, RunningTask], ...]]

_devices_of = attrgetter("devices")


@dataclass(frozen=True, slots=True)
class DrainLink:
    """One task that drains, or that waits for others to drain, with its group."""

    group: RunningGroup
    running_task: RunningTask


@dataclass(frozen=True, slots=True, eq=False)
class _RunningVersion:
    """Equal where a pool runs the same tasks, of which the same wait for others or stop for them.

    Tasks are compared by identity: comparing their contents takes longer than locating them.
    """

    configuration: int
    stopping_or_waiting: set[Id]
    groups: list[RunningGroup]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _RunningVersion)
            and self.configuration == other.configuration
            and self.stopping_or_waiting == other.stopping_or_waiting
            and _is_same_running(self.groups, other.groups)
        )

    __hash__ = None  # type: ignore[assignment]  # versions are compared only


class InitialState:
    """Ledger and free capacity at the start.

    Members are located pool by pool when the nodes of a pool are first used: in a full pool they
    never are.

    Args:
        memo: with it, a pool in which the same work runs is not gone through again.
    """

    def __init__(self, configuration: CompiledConfiguration, memo: Memo) -> None:
        compiled, layouts = configuration.compiled, configuration.layouts
        self.compiled = compiled
        self._version = configuration.version
        self._memo = memo
        self.ledger = Ledger(compiled)
        self.layouts = layouts
        self.stopping_or_waiting = _stopping_or_waiting(compiled.snapshot.running)
        self._free = [list(capacity) for capacity in compiled.capacities]
        self._located: dict[int, list[RunningGroup]] = {
            pool: [] for pool, layout in enumerate(layouts) if layout is not None
        }
        self._states: dict[int, list[State]] = {}
        self._likely_members: dict[Id, tuple[MemberAssignment, ...]] = {}
        self._book_drains(self._book_all())
        self.free_capacities = [
            FreeCapacity(free, partial(self._nodes, pool) if pool in self._located else None)
            for pool, free in enumerate(self._free)
        ]

    def likely_members(self) -> dict[Id, tuple[MemberAssignment, ...]]:
        """Members of running work whose nodes are not stored, where this pass takes them to be."""
        for pool in self._located:
            self._node_states(pool)
        return self._likely_members

    def _nodes(self, pool: int) -> Nodes:
        layout = self.layouts[pool]
        if layout is None:
            raise AssertionError("only a pool with nodes is asked for them")
        return Nodes.of(layout, self._node_states(pool))

    def _book_all(self) -> dict[Id, DrainLink]:
        """Book all tasks that no drain concerns; returns the rest, by task."""
        stopping_or_waiting = self.stopping_or_waiting
        singles: dict[Id, DrainLink] = {}
        for group in self.compiled.snapshot.running:
            pool = self.compiled.pool_index.get(group.pool)
            if pool in self._located:
                self._located[pool].append(group)
            independent = group.tasks
            if stopping_or_waiting:
                independent = tuple(
                    running_task
                    for running_task in group.tasks
                    if running_task.task not in stopping_or_waiting
                )
                singles |= {
                    running_task.task: DrainLink(group, running_task)
                    for running_task in group.tasks
                    if running_task.task in stopping_or_waiting
                }
            if independent:
                self._book_group(group, pool, len(independent))
            if group.is_stopping:
                self._note_leaving(group)
        return singles

    def _book_group(self, group: RunningGroup, pool: int | None, count: int) -> None:
        chain = self.compiled.chains[self.compiled.policy_index[group.policy]]
        shape = self.compiled.shape_of(group.request, group.replicas)
        amounts = tuple([(key, amount * count) for key, amount in shape.amounts])
        self.ledger.book(
            chain,
            amounts,
            is_preemptible=group.is_preemptible,
            is_exempt=group.can_exceed_limit and group.is_preemptible,
            user=group.user,
        )
        if pool is not None:
            for key, amount in amounts:
                self._free[pool][key] -= amount

    def _note_leaving(self, group: RunningGroup) -> None:
        count = sum(running_task.is_leaving for running_task in group.tasks)
        if count:
            chain = self.compiled.chains[self.compiled.policy_index[group.policy]]
            shape = self.compiled.shape_of(group.request, group.replicas)
            self.ledger.leave(chain, tuple([(key, one * count) for key, one in shape.amounts]))

    def _node_states(self, pool: int) -> list[State]:
        """The nodes of a pool with all tasks on them that no drain concerns."""
        found = self._states.get(pool)
        if found is not None:
            return found
        layout = self.layouts[pool]
        if layout is None:
            return self._states.setdefault(pool, [])
        groups = self._located[pool]
        version = _RunningVersion(self._version, self.stopping_or_waiting, groups)
        states, unknown = self._memo.get(
            ("node states", pool), version, partial(self._place_known, layout, groups)
        )
        found = self._states[pool] = list(states)
        for group, running_task in unknown:
            for account, amount in self._member_accounts(group, running_task, {}).items():
                self._apply(account, amount)
        return found

    def _place_known(self, layout: NodeLayout, groups: list[RunningGroup]) -> _KnownStates:
        free = [(list(scalars), list(gpus)) for scalars, gpus in layout.empty()]
        unknown: list[tuple[int, Id, RunningGroup, RunningTask]] = []
        for group in groups:
            shape = self.compiled.shape_of(group.request, group.replicas)
            need = layout.need(shape)
            for running_task in group.tasks:
                if running_task.task in self.stopping_or_waiting:
                    continue
                if not shape.gpu_milli or all(map(_devices_of, running_task.members)):
                    _take_known(layout, need.scalars, running_task, free)
                else:
                    unknown.append((-shape.gpu_milli, running_task.task, group, running_task))
        # Whole GPUs first, then fractions.
        unknown.sort(key=lambda one: one[:2])
        return (
            tuple([(tuple(scalars), tuple(gpus)) for scalars, gpus in free]),
            tuple([(group, running_task) for _, _, group, running_task in unknown]),
        )

    def _member_accounts(
        self, group: RunningGroup, running_task: RunningTask, reusable: dict[Account, int]
    ) -> dict[Account, int]:
        """What a task holds on nodes; `reusable` is capacity of its victims that it may use."""
        pool = self.compiled.pool_index.get(group.pool)
        layout = None if pool is None else self.layouts[pool]
        if pool is None or layout is None:
            return {}
        shape = self.compiled.shape_of(group.request, group.replicas)
        need = layout.need(shape)
        states = self._node_states(pool)
        accounts: dict[Account, int] = {}
        members: list[MemberAssignment] = []
        for member in running_task.members:
            node = layout.index.get(member.node)
            if node is None:
                continue
            for position, amount in need.scalars:
                _count(accounts, ("scalar", pool, node, position), amount)
            gpus = _named_gpus(member, layout.gpus[node])
            if not member.devices:
                accounts_of = [
                    ("gpu", pool, node, position) for position in range(len(layout.gpus[node]))
                ]
                free = [
                    one + reusable.get(account, 0) - accounts.get(account, 0)
                    for one, account in zip(states[node][1], accounts_of, strict=True)
                ]
                gpus = _likely_gpus(free, shape.gpu_milli)
            for position, milli in gpus:
                _count(accounts, ("gpu", pool, node, position), milli)
            members.append((node, tuple(gpus)))
        self._likely_members[running_task.task] = tuple(members)
        return accounts

    def _book_drains(self, singles: dict[Id, DrainLink]) -> None:
        victims: dict[Id, list[Id]] = {}
        roots = []
        for task in sorted(singles):
            link = singles[task]
            beneficiary = link.running_task.stops_for if link.group.is_stopping else None
            if beneficiary is not None and beneficiary in singles and not _circular(task, singles):
                victims.setdefault(beneficiary, []).append(task)
            else:
                roots.append(task)
        for task in roots:
            for account, amount in self._drain(task, singles, victims).items():
                self._apply(account, amount)

    def _drain(
        self, task: Id, singles: dict[Id, DrainLink], victims: dict[Id, list[Id]]
    ) -> dict[Account, int]:
        below: dict[Account, int] = {}
        for victim in victims.get(task, []):
            for account, amount in self._drain(victim, singles, victims).items():
                _count(below, account, amount)
        own = self._accounts(singles[task], below)
        for account, amount in below.items():
            # Victims hold capacity until they end; usage of policies is the beneficiary's already,
            # as in the pass that chose them, so that no right changes while they drain.
            if account[0] in CAPACITY_ACCOUNTS:
                own[account] = max(own.get(account, 0), amount)
        return own

    def _accounts(self, link: DrainLink, reusable: dict[Account, int]) -> dict[Account, int]:
        group = link.group
        compiled = self.compiled
        chain = compiled.chains[compiled.policy_index[group.policy]]
        shape = compiled.shape_of(group.request, group.replicas)
        accounts: dict[Account, int] = {}
        for key, amount in shape.amounts:
            for policy in chain:
                accounts["usage", policy, key] = amount
                if not group.is_preemptible:
                    accounts["non_preemptible", policy, key] = amount
                if group.user is not None and compiled.user_limits[policy]:
                    accounts["user", policy, group.user, key] = amount
            if group.can_exceed_limit and group.is_preemptible:
                accounts["exempt", chain[-1], key] = amount
        pool = compiled.pool_index.get(group.pool)
        if pool is not None:
            for key, amount in shape.amounts:
                accounts["pool", pool, key] = amount
            accounts |= self._member_accounts(group, link.running_task, reusable)
        return accounts

    def _apply(self, account: Account, amount: int) -> None:
        match account:
            case ("usage", int(policy), int(key)):
                self.ledger.usage[policy][key] += amount
            case ("non_preemptible", int(policy), int(key)):
                self.ledger.non_preemptible[policy][key] += amount
            case ("exempt", int(policy), int(key)):
                self.ledger.exempt[policy][key] += amount
            case ("user", int(policy), user, int(key)):
                self.ledger.user_usage(policy, user)[key] += amount
            case ("pool", int(pool), int(key)):
                self._free[pool][key] -= amount
            case ("scalar", int(pool), int(node), int(position)):
                scalars, gpus = self._states[pool][node]
                self._states[pool][node] = (_less(scalars, position, amount), gpus)
            case ("gpu", int(pool), int(node), int(position)):
                scalars, gpus = self._states[pool][node]
                self._states[pool][node] = (scalars, _less(gpus, position, amount))


def _stopping_or_waiting(running: Iterable[RunningGroup]) -> set[Id]:
    """Tasks that stop for another one, and those for which others stop."""
    found: set[Id] = set()
    for group in running:
        if group.is_stopping:
            for running_task in group.tasks:
                if running_task.stops_for is not None:
                    found.update((running_task.task, running_task.stops_for))
    return found


def _is_same_running(ones: list[RunningGroup], others: list[RunningGroup]) -> bool:
    return len(ones) == len(others) and all(
        one.request == other.request
        and one.replicas == other.replicas
        and len(one.tasks) == len(other.tasks)
        and all(map(is_, one.tasks, other.tasks))
        for one, other in zip(ones, others, strict=True)
    )


def _circular(task: Id, singles: dict[Id, DrainLink]) -> bool:
    """Whether following the beneficiaries leads back to the task; such a snapshot is damaged."""
    seen = {task}
    at = singles[task].running_task.stops_for
    while at is not None and at in singles and singles[at].group.is_stopping:
        if at in seen:
            return True
        seen.add(at)
        at = singles[at].running_task.stops_for
    return False


def _take_known(
    layout: NodeLayout,
    scalars: tuple[tuple[int, int], ...],
    running_task: RunningTask,
    free: list[tuple[list[int], list[int]]],
) -> None:
    for member in running_task.members:
        node = layout.index.get(member.node)
        if node is None:
            continue
        free_scalars, free_gpus = free[node]
        for position, amount in scalars:
            free_scalars[position] -= amount
        indices = layout.gpus[node]
        for share in member.devices:
            index = share.index
            if index in indices:
                free_gpus[indices.index(index)] -= share.milli


def _named_gpus(member: MemberPlacement, indices: tuple[int, ...]) -> list[tuple[int, int]]:
    """Positions and shares of the GPUs that the snapshot names, without unknown ones."""
    return [
        (indices.index(share.index), share.milli)
        for share in member.devices
        if share.index in indices
    ]


def _likely_gpus(free: list[int], milli: int) -> list[tuple[int, int]]:
    """GPUs of running work whose GPUs are not stored; the fullest that can hold it."""
    if not milli or not free:
        return []
    if milli < WHOLE:
        fitting = [(one, position) for position, one in enumerate(free) if one >= milli]
        position = min(fitting)[1] if fitting else max(range(len(free)), key=free.__getitem__)
        return [(position, milli)]
    fullest_last = sorted(range(len(free)), key=lambda position: (-free[position], position))
    return [(position, WHOLE) for position in fullest_last[: milli // WHOLE]]


def _less(amounts: tuple[int, ...], position: int, amount: int) -> tuple[int, ...]:
    return (*amounts[:position], amounts[position] - amount, *amounts[position + 1 :])


def _count(accounts: dict[Account, int], account: Account, amount: int) -> None:
    accounts[account] = accounts.get(account, 0) + amount
