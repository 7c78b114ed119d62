"""The state in which a pass begins: what running work holds, draining room counted once.

Work that stops for a taker and the taker itself hold, in every account, the larger of the two: the
taker stands on the room of its victims. A chain of takers is followed to its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, is_

from apps.allocation.engine.compiled import Compiled
from apps.allocation.engine.ledger import Ledger
from apps.allocation.engine.nodes import Nodes, Seat, Site, State
from apps.allocation.engine.quantities import WHOLE
from apps.allocation.engine.rooms import Room
from apps.allocation.engine.snapshot import Held, Id, Member, Running

# ("usage", policy, key) and the like, with thousandths.
# Accounts of room, not of what policies use.
ROOM = frozenset({"pool", "scalar", "gpu"})
Account = tuple[str | int, ...]

# By pool: running work that seats are known of, and what it leaves free on the nodes.
KeptSeats = dict[int, tuple[list[Running], tuple[State, ...]]]

_devices_of = attrgetter("devices")


@dataclass(frozen=True, slots=True)
class Holding:
    """One task that drains, or that waits for others to drain, with its group."""

    group: Running
    held: Held


class Opening:
    """Ledger and rooms of the moment.

    Who sits where is found out pool by pool once somebody looks at its nodes: in a full pool
    nobody does.

    Args:
        kept: of earlier passes; a pool in which the very same work runs is not gone through again.
    """

    def __init__(self, compiled: Compiled, sites: list[Site | None], kept: KeptSeats) -> None:
        self.compiled = compiled
        self._kept = kept
        self.ledger = Ledger(compiled)
        self.sites = sites
        self.linked = _linked(compiled.snapshot.running)
        self._free = [list(capacity) for capacity in compiled.capacities]
        self._seated: dict[int, list[Running]] = {
            pool: [] for pool, site in enumerate(sites) if site is not None
        }
        self._states: dict[int, list[State]] = {}
        self._likely_seats: dict[Id, tuple[Seat, ...]] = {}
        self._book_drains(self._book_all())
        self.rooms = [
            Room(free, partial(self._nodes, pool) if pool in self._seated else None)
            for pool, free in enumerate(self._free)
        ]

    def likely_seats(self) -> dict[Id, tuple[Seat, ...]]:
        """Seats of running work that nobody wrote down, as this pass takes them to be."""
        for pool in self._seated:
            self._seat(pool)
        return self._likely_seats

    def _nodes(self, pool: int) -> Nodes:
        site = self.sites[pool]
        if site is None:
            raise AssertionError("only a pool with nodes is asked for them")
        return Nodes.of(site, self._seat(pool))

    def _book_all(self) -> dict[Id, Holding]:
        """Book what no draining concerns; returns the rest, by task."""
        linked = self.linked
        singles: dict[Id, Holding] = {}
        for group in self.compiled.snapshot.running:
            pool = self.compiled.pool_index.get(group.pool)
            if pool in self._seated:
                self._seated[pool].append(group)
            plain = group.tasks
            if linked:
                plain = tuple(held for held in group.tasks if held.task not in linked)
                singles |= {
                    held.task: Holding(group, held) for held in group.tasks if held.task in linked
                }
            if plain:
                self._book_plain(group, pool, len(plain))
            if group.is_stopping:
                self._note_leaving(group)
        return singles

    def _book_plain(self, group: Running, pool: int | None, count: int) -> None:
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

    def _note_leaving(self, group: Running) -> None:
        count = sum(held.is_leaving for held in group.tasks)
        if count:
            chain = self.compiled.chains[self.compiled.policy_index[group.policy]]
            shape = self.compiled.shape_of(group.request, group.replicas)
            self.ledger.leave(chain, tuple([(key, one * count) for key, one in shape.amounts]))

    def _seat(self, pool: int) -> list[State]:
        """The nodes of a pool with everybody on them whom no draining concerns."""
        found = self._states.get(pool)
        if found is not None:
            return found
        site = self.sites[pool]
        groups = self._seated[pool]
        kept = None if self.linked else self._kept.get(pool)
        if kept is not None and _is_same_work(kept[0], groups):
            found = self._states[pool] = list(kept[1])
            return found
        found = self._states[pool] = site.empty() if site else []
        if site is not None and self._seat_all(site, groups, found) and not self.linked:
            self._kept[pool] = (groups, tuple(found))
        return found

    def _seat_all(self, site: Site, groups: list[Running], states: list[State]) -> bool:
        """Returns whether the snapshot names the GPUs of everybody."""
        free = [(list(scalars), list(gpus)) for scalars, gpus in states]
        unknown: list[tuple[int, Id, Running, Held]] = []
        for group in groups:
            shape = self.compiled.shape_of(group.request, group.replicas)
            need = site.need(shape)
            for held in group.tasks:
                if held.task in self.linked:
                    continue
                if not shape.gpu_milli or all(map(_devices_of, held.members)):
                    _take_known(site, need.scalars, held, free)
                else:
                    unknown.append((-shape.gpu_milli, held.task, group, held))
        states[:] = [(tuple(scalars), tuple(gpus)) for scalars, gpus in free]
        # Whole GPUs first, then fractions.
        unknown.sort(key=lambda one: one[:2])
        for _, _, group, held in unknown:
            for account, amount in self._seat_accounts(group, held, {}).items():
                self._apply(account, amount)
        return not unknown

    def _seat_accounts(
        self, group: Running, held: Held, spare: dict[Account, int]
    ) -> dict[Account, int]:
        """What a task holds on nodes; `spare` is room of its victims that it may stand on."""
        pool = self.compiled.pool_index.get(group.pool)
        site = None if pool is None else self.sites[pool]
        if pool is None or site is None:
            return {}
        shape = self.compiled.shape_of(group.request, group.replicas)
        need = site.need(shape)
        states = self._seat(pool)
        accounts: dict[Account, int] = {}
        seats: list[Seat] = []
        for member in held.members:
            node = site.index.get(member.node)
            if node is None:
                continue
            for place, amount in need.scalars:
                _count(accounts, ("scalar", pool, node, place), amount)
            gpus = _named_gpus(member, site.gpus[node])
            if not member.devices:
                accounts_of = [("gpu", pool, node, place) for place in range(len(site.gpus[node]))]
                free = [
                    one + spare.get(account, 0) - accounts.get(account, 0)
                    for one, account in zip(states[node][1], accounts_of, strict=True)
                ]
                gpus = _likely_gpus(free, shape.gpu_milli)
            for place, milli in gpus:
                _count(accounts, ("gpu", pool, node, place), milli)
            seats.append((node, tuple(gpus)))
        self._likely_seats[held.task] = tuple(seats)
        return accounts

    def _book_drains(self, singles: dict[Id, Holding]) -> None:
        victims: dict[Id, list[Id]] = {}
        roots = []
        for task in sorted(singles):
            holding = singles[task]
            taker = holding.held.stops_for if holding.group.is_stopping else None
            if taker is not None and taker in singles and not _circular(task, singles):
                victims.setdefault(taker, []).append(task)
            else:
                roots.append(task)
        for task in roots:
            for account, amount in self._drain(task, singles, victims).items():
                self._apply(account, amount)

    def _drain(
        self, task: Id, singles: dict[Id, Holding], victims: dict[Id, list[Id]]
    ) -> dict[Account, int]:
        below: dict[Account, int] = {}
        for victim in victims.get(task, []):
            for account, amount in self._drain(victim, singles, victims).items():
                _count(below, account, amount)
        own = self._accounts(singles[task], below)
        for account, amount in below.items():
            # Their room is held until they are gone; what policies use is the taker's already,
            # as in the pass that took them, so that no right changes while they drain.
            if account[0] in ROOM:
                own[account] = max(own.get(account, 0), amount)
        return own

    def _accounts(self, holding: Holding, spare: dict[Account, int]) -> dict[Account, int]:
        group = holding.group
        compiled = self.compiled
        chain = compiled.chains[compiled.policy_index[group.policy]]
        shape = compiled.shape_of(group.request, group.replicas)
        accounts: dict[Account, int] = {}
        for key, amount in shape.amounts:
            for policy in chain:
                accounts["usage", policy, key] = amount
                if not group.is_preemptible:
                    accounts["fixed", policy, key] = amount
                if group.user is not None and compiled.user_limits[policy]:
                    accounts["user", policy, group.user, key] = amount
            if group.can_exceed_limit and group.is_preemptible:
                accounts["exempt", chain[-1], key] = amount
        pool = compiled.pool_index.get(group.pool)
        if pool is not None:
            for key, amount in shape.amounts:
                accounts["pool", pool, key] = amount
            accounts |= self._seat_accounts(group, holding.held, spare)
        return accounts

    def _apply(self, account: Account, amount: int) -> None:
        match account:
            case ("usage", int(policy), int(key)):
                self.ledger.usage[policy][key] += amount
            case ("fixed", int(policy), int(key)):
                self.ledger.fixed[policy][key] += amount
            case ("exempt", int(policy), int(key)):
                self.ledger.exempt[policy][key] += amount
            case ("user", int(policy), user, int(key)):
                self.ledger.user_usage(policy, user)[key] += amount
            case ("pool", int(pool), int(key)):
                self._free[pool][key] -= amount
            case ("scalar", int(pool), int(node), int(place)):
                scalars, gpus = self._states[pool][node]
                self._states[pool][node] = (_less(scalars, place, amount), gpus)
            case ("gpu", int(pool), int(node), int(place)):
                scalars, gpus = self._states[pool][node]
                self._states[pool][node] = (scalars, _less(gpus, place, amount))


def _linked(running: Iterable[Running]) -> set[Id]:
    """Tasks that stop for another one, and those for which others stop."""
    found: set[Id] = set()
    for group in running:
        if group.is_stopping:
            for held in group.tasks:
                if held.stops_for is not None:
                    found.update((held.task, held.stops_for))
    return found


def _is_same_work(ones: list[Running], others: list[Running]) -> bool:
    """Whether both hold the same, told by the identity of tasks: to compare them takes longer
    than to seat them.
    """
    return len(ones) == len(others) and all(
        one.request == other.request
        and one.replicas == other.replicas
        and len(one.tasks) == len(other.tasks)
        and all(map(is_, one.tasks, other.tasks))
        for one, other in zip(ones, others, strict=True)
    )


def _circular(task: Id, singles: dict[Id, Holding]) -> bool:
    """Whether following the takers leads back to the task; such a snapshot is damaged."""
    seen = {task}
    at = singles[task].held.stops_for
    while at is not None and at in singles and singles[at].group.is_stopping:
        if at in seen:
            return True
        seen.add(at)
        at = singles[at].held.stops_for
    return False


def _take_known(
    site: Site,
    scalars: tuple[tuple[int, int], ...],
    held: Held,
    free: list[tuple[list[int], list[int]]],
) -> None:
    for member in held.members:
        node = site.index.get(member.node)
        if node is None:
            continue
        free_scalars, free_gpus = free[node]
        for place, amount in scalars:
            free_scalars[place] -= amount
        indices = site.gpus[node]
        for share in member.devices:
            index = share.index
            if index in indices:
                free_gpus[indices.index(index)] -= share.milli


def _named_gpus(member: Member, indices: tuple[int, ...]) -> list[tuple[int, int]]:
    """Positions and shares of the GPUs that the snapshot names, unknown ones left out."""
    return [
        (indices.index(share.index), share.milli)
        for share in member.devices
        if share.index in indices
    ]


def _likely_gpus(free: list[int], milli: int) -> list[tuple[int, int]]:
    """GPUs of running work of which nobody wrote down the GPUs; the fullest that hold it."""
    if not milli or not free:
        return []
    if milli < WHOLE:
        fitting = [(one, place) for place, one in enumerate(free) if one >= milli]
        place = min(fitting)[1] if fitting else max(range(len(free)), key=free.__getitem__)
        return [(place, milli)]
    fullest_last = sorted(range(len(free)), key=lambda place: (-free[place], place))
    return [(place, WHOLE) for place in fullest_last[: milli // WHOLE]]


def _less(amounts: tuple[int, ...], place: int, amount: int) -> tuple[int, ...]:
    return (*amounts[:place], amounts[place] - amount, *amounts[place + 1 :])


def _count(accounts: dict[Account, int], account: Account, amount: int) -> None:
    accounts[account] = accounts.get(account, 0) + amount
