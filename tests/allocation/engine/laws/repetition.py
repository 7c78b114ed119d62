"""Laws 7, 8 and 9: passes repeat nothing, end soon, and come to rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from apps.allocation.engine.model.plan import Move, Plan, Preempt
from apps.allocation.engine.model.snapshot import (
    Id,
    MemberPlacement,
    NodeSnapshot,
    PolicySnapshot,
    PoolSnapshot,
    PreemptionMode,
    ProfileSnapshot,
    QueuedGroup,
    QueuedTask,
    QueueSnapshot,
    RunningGroup,
    RunningTask,
    Snapshot,
)
from tests.allocation.engine.laws.history import Moment, carried_out, drained

Rename = Callable[[Id], Id]


def a_second_pass_decides_nothing(moment: Moment) -> None:
    """Law 7, first half: the victims still stopping; except about displaced work, by preempting
    what the first pass placed for a strict policy, and by moving what it placed or moved.
    """
    second = moment.decide(carried_out(moment.snapshot, moment.plan))
    if any(_is_strict_start(moment, one.task) for one in second.preempted):
        return
    settled = {*moment.places, *(one.task for one in moment.plan.moved)}
    moved = {one.beneficiary for one in second.moved if one.task in settled}
    again = moved | set(moment.plan.displaced)
    found: list[object] = [one for one in second.placed if one.task not in again]
    taken: list[Preempt | Move] = [*second.preempted, *second.moved]
    found += [one for one in taken if one.beneficiary not in again]
    assert not found, f"a second pass decides {found}"


def _is_strict_start(moment: Moment, task: Id) -> bool:
    if task not in moment.places:
        return False
    return moment.world.is_strict(moment.world.policy_of(moment.queued_groups[task]))


def order_and_names_change_nothing(moment: Moment) -> None:
    """Law 7, second half: other rows, other names in the same order, the same plan."""
    plan = moment.plan

    assert contents(moment.decide(reordered(moment.snapshot))) == contents(plan)
    renamed, back = renaming(moment.snapshot)
    assert contents(moment.decide(renamed), back) == contents(plan)


def a_pass_ends_soon(moment: Moment) -> None:
    """Law 8: a walk makes at most as many rounds as groups and placements, each further walk
    places something, displaced later or not, and a match takes no more steps than its groups
    have pools to go to.
    """
    figures = moment.plan.figures
    placed = len(moment.plan.placed) + len(moment.plan.displaced)
    queued_groups = len(moment.snapshot.queued_groups)

    assert figures.walks <= 1 + placed, f"{figures.walks} walks for {placed} placements"
    assert figures.matches <= figures.walks * max(1, queued_groups + placed)
    heads = sum(len(queued.heads) for queued in moment.snapshot.queued_groups)
    pools = max((len(profile.pools) for profile in moment.snapshot.profiles), default=0)
    assert figures.rounds <= figures.matches * max(1, heads * pools)


def passes_come_to_rest(moment: Moment) -> None:
    """Law 9: within three times as many passes as tasks, and no two tasks take turns; except
    where rank, a policy's own priorities and reservations may prefer in a circle.
    """
    words = _unrest(moment)
    assert not words or may_prefer_in_a_circle(moment.snapshot), words


def may_prefer_in_a_circle(snapshot: Snapshot) -> bool:
    """Whether, somewhere, ranks take, and a policy has tasks of unequal size and priority."""
    levels = {pool.preemption or snapshot.settings.preemption for pool in snapshot.pools}
    if PreemptionMode.RANK not in levels:
        return False
    policies = {queue.id: queue.policy for queue in snapshot.queues}
    sizes: dict[Id, set[object]] = {}
    priorities: dict[Id, set[int]] = {}
    for queued in snapshot.queued_groups:
        sizes.setdefault(policies[queued.queue], set()).add((queued.request, queued.replicas))
        priorities.setdefault(policies[queued.queue], set()).add(queued.priority)
    for group in snapshot.running:
        sizes.setdefault(group.policy, set()).add((group.request, group.replicas))
        priorities.setdefault(group.policy, set()).add(group.priority)
    return any(len(sizes[one]) > 1 and len(priorities[one]) > 1 for one in sizes)


def _unrest(moment: Moment) -> str:
    """What does not come to rest when passes follow one another; empty when all does."""
    snapshot = moment.snapshot
    tasks = sum(len(queued.heads) for queued in snapshot.queued_groups)
    tasks += sum(len(group.tasks) for group in snapshot.running)
    # In every second case victims take a pass to be gone.
    is_slow = tasks % 2 == 1
    took: set[tuple[Id, Id]] = set()
    for _ in range(3 * tasks + 1):
        plan = moment.decide(snapshot)
        for one in plan.preempted:
            if (one.task, one.beneficiary) in took:
                return f"{one} after the reverse"
            took.add((one.beneficiary, one.task))
        is_stopping = any(group.is_stopping for group in snapshot.running)
        if not is_stopping and not plan.placed and not plan.preempted and not plan.moved:
            return ""
        if is_stopping or not is_slow:
            snapshot = drained(carried_out(snapshot, plan))
        else:
            snapshot = carried_out(snapshot, plan)
    return "passes go on and on"


def contents(plan: Plan, back: Rename = lambda name: name) -> object:
    """A plan without the order of rows, by the names that it would have without `back`."""

    def members(found: tuple[MemberPlacement, ...]) -> object:
        return [(back(one.node), one.devices) for one in found]

    placed = {
        back(one.task): (
            back(one.queue),
            back(one.pool),
            one.tier,
            members(one.members),
            [back(task) for task in one.waits_for],
        )
        for one in plan.placed
    }
    waiting = {
        tuple(back(task) for task in one.tasks): (
            one.position,
            one.count,
            [reason.code for reason in one.reasons],
        )
        for one in plan.waiting
    }
    taken = {back(one.task): (back(one.pool), back(one.beneficiary)) for one in plan.preempted}
    moved = {back(one.task): (back(one.beneficiary), members(one.members)) for one in plan.moved}
    return placed, waiting, taken, moved


Row = TypeVar("Row")


def mixed(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    turned = rows[::-1]
    return (*turned[1:2], *turned[:1], *turned[2:])


def reordered(snapshot: Snapshot) -> Snapshot:
    """Every list whose order means nothing, reversed."""
    return replace(
        snapshot,
        pools=mixed(tuple(replace(one, nodes=mixed(one.nodes)) for one in snapshot.pools)),
        profiles=mixed(snapshot.profiles),
        policies=mixed(snapshot.policies),
        queues=mixed(snapshot.queues),
        queued_groups=mixed(snapshot.queued_groups),
        running=mixed(tuple(replace(one, tasks=mixed(one.tasks)) for one in snapshot.running)),
        usual=mixed(snapshot.usual),
    )


def renaming(snapshot: Snapshot) -> tuple[Snapshot, Rename]:
    """Other names, and other ids of another type, in the same order; and the names to restore."""
    names: set[Id] = set()
    for pool in snapshot.pools:
        names.update((pool.id, *(node.id for node in pool.nodes)))
    for things in (snapshot.profiles, snapshot.policies, snapshot.queues):
        names.update(one.id for one in things)
    for queued in snapshot.queued_groups:
        names.update((*(head.task for head in queued.heads), *_user(queued)))
    for group in snapshot.running:
        names.update(_user(group))
        for running_task in group.tasks:
            names.update(
                (
                    running_task.task,
                    *(() if running_task.stops_for is None else (running_task.stops_for,)),
                )
            )
    numbers: dict[Id, Id] = {name: 7 * place for place, name in enumerate(sorted(names, key=str))}
    olds = {number: name for name, number in numbers.items()}
    return _Renaming(numbers).snapshot(snapshot), olds.__getitem__


def _user(work: QueuedGroup | RunningGroup) -> tuple[Id, ...]:
    return () if work.user is None else (work.user,)


class _Renaming:
    def __init__(self, numbers: dict[Id, Id]) -> None:
        self.numbers = numbers

    def id(self, old: Id) -> Id:
        return self.numbers[old]

    def ids(self, olds: tuple[Id, ...]) -> tuple[Id, ...]:
        return tuple(self.numbers[old] for old in olds)

    def maybe(self, old: Id | None) -> Id | None:
        return None if old is None else self.numbers[old]

    def name(self, old: Id) -> str:
        return f"{self.numbers[old]:05d}"

    def snapshot(self, old: Snapshot) -> Snapshot:
        return replace(
            old,
            pools=tuple(map(self.pool, old.pools)),
            profiles=tuple(map(self.profile, old.profiles)),
            policies=tuple(map(self.policy, old.policies)),
            queues=tuple(map(self.queue, old.queues)),
            queued_groups=tuple(map(self.queued, old.queued_groups)),
            running=tuple(map(self.running, old.running)),
        )

    def pool(self, old: PoolSnapshot) -> PoolSnapshot:
        return replace(
            old,
            id=self.id(old.id),
            name=self.name(old.id),
            profiles=self.ids(old.profiles),
            nodes=tuple(map(self.node, old.nodes)),
        )

    def node(self, old: NodeSnapshot) -> NodeSnapshot:
        return replace(old, id=self.id(old.id), name=self.name(old.id))

    def profile(self, old: ProfileSnapshot) -> ProfileSnapshot:
        return replace(
            old,
            id=self.id(old.id),
            name=self.name(old.id),
            pools=self.ids(old.pools),
            policies=self.ids(old.policies),
        )

    def policy(self, old: PolicySnapshot) -> PolicySnapshot:
        return replace(
            old, id=self.id(old.id), name=self.name(old.id), parent=self.maybe(old.parent)
        )

    def queue(self, old: QueueSnapshot) -> QueueSnapshot:
        return replace(
            old, id=self.id(old.id), policy=self.id(old.policy), profile=self.id(old.profile)
        )

    def queued(self, old: QueuedGroup) -> QueuedGroup:
        return replace(
            old,
            queue=self.id(old.queue),
            heads=tuple(QueuedTask(one.submitted_us, self.id(one.task)) for one in old.heads),
            user=self.maybe(old.user),
        )

    def running(self, old: RunningGroup) -> RunningGroup:
        return replace(
            old,
            pool=self.id(old.pool),
            policy=self.id(old.policy),
            profile=self.id(old.profile),
            queue=self.maybe(old.queue),
            user=self.maybe(old.user),
            tasks=tuple(map(self.held, old.tasks)),
        )

    def held(self, old: RunningTask) -> RunningTask:
        return replace(
            old,
            task=self.id(old.task),
            stops_for=self.maybe(old.stops_for),
            members=tuple(replace(one, node=self.id(one.node)) for one in old.members),
        )
