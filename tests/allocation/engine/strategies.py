"""Generated configurations: hierarchies, several keys, nodes, fractions, gangs, odd orders."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from apps.allocation.engine import decide
from apps.allocation.engine.model.quantities import NOTHING, Quantities
from apps.allocation.engine.model.snapshot import (
    NodeSnapshot,
    OverQuotaMode,
    PolicySnapshot,
    PoolSnapshot,
    PreemptionMode,
    ProfileSnapshot,
    QueuedGroup,
    QueuedTask,
    QueueingMode,
    QueueSnapshot,
    RunningGroup,
    RunningTask,
    SettingsSnapshot,
    Snapshot,
)
from tests.allocation.engine.families import EVERYTHING, PACKED, TAKING, Family, one_in, some_of
from tests.allocation.engine.laws.history import SECOND, Case, Step, carried_out, merged

GPU_REQUESTS = (1000, 2000, 1000, 1000, 500, 2000, 250, 3000, 700, 4000)
USERS = ("u1", "u2")
NOW = 100


@st.composite
def quantities(draw: st.DrawFn, most_gpus: int) -> Quantities:
    """Amounts per key, each of which may be left out."""
    found: dict[str, int] = {}
    if not draw(one_in(8)):
        found["gpu"] = 1000 * draw(st.sampled_from(range(most_gpus + 1)))
    if draw(one_in(4)):
        found["cpu"] = 1000 * draw(st.sampled_from(range(2 * most_gpus + 1)))
        if draw(one_in(3)):
            found["memory_mb"] = 1000 * draw(st.sampled_from((16, 8, 4, 0)))
        elif draw(one_in(3)):
            found["license"] = 1000 * draw(st.sampled_from((2, 1, 0)))
    return Quantities.of(found)


@st.composite
def nodes(draw: st.DrawFn, pool: int) -> tuple[NodeSnapshot, ...]:
    found = []
    for number in range(draw(st.integers(1, 3))):
        gpus = draw(st.sampled_from((4, 2, 4, 3, 4, 1, 8, 0)))
        capacity = {"gpu": 1000 * gpus}
        if draw(one_in(3)):
            capacity["cpu"] = 1000 * draw(st.sampled_from((8, 4, 2, 0)))
            if draw(one_in(3)):
                capacity["memory_mb"] = 1000 * draw(st.sampled_from((16, 8, 4)))
        found.append(
            NodeSnapshot(
                id=f"n{pool}{number}",
                name=f"n{pool}{number}",
                capacity=Quantities.of(capacity),
                model=draw(st.sampled_from(("A", "B", None))),
                unavailable_gpus=(0,) if gpus and draw(one_in(8)) else (),
                is_schedulable=not draw(one_in(10)),
            )
        )
    return tuple(found)


@st.composite
def pools(draw: st.DrawFn, profiles: list[str], kind: Family) -> tuple[PoolSnapshot, ...]:
    found = []
    for number in range(draw(st.sampled_from((1, 2, 1, 2, 3)))):
        members: tuple[NodeSnapshot, ...] = ()
        capacity: dict[str, int]
        if kind.is_packed or (kind.has_nodes and draw(one_in(3))):
            members = draw(nodes(number))
            capacity = {"gpu": sum(node.capacity.get("gpu") for node in members)}
            if draw(st.booleans()):
                for key in ("cpu", "memory_mb"):
                    if any(key in node.capacity for node in members):
                        capacity[key] = sum(node.capacity.get(key) for node in members)
        else:
            capacity = {"gpu": 1000 * draw(st.sampled_from((4, 6, 8, 3, 6, 2, 8, 1, 12, 0)))}
            if draw(one_in(3)):
                capacity["cpu"] = 1000 * draw(st.sampled_from((12, 8, 4, 1)))
        if draw(one_in(3)):
            capacity["license"] = 1000 * draw(st.sampled_from((3, 2, 1, 0)))
        found.append(
            PoolSnapshot(
                id=f"pool{number}",
                name=f"pool{number}",
                capacity=Quantities.of(capacity),
                profiles=tuple(draw(st.permutations(profiles))),
                nodes=members,
                has_backfill=not (kind.can_lack_backfill and draw(one_in(4))),
                is_paused=kind.has_pauses and draw(one_in(8)),
                has_server=not (kind.has_pauses and draw(one_in(8))),
            )
        )
    return tuple(found)


@st.composite
def policies(draw: st.DrawFn, kind: Family) -> tuple[PolicySnapshot, ...]:
    """Up to three levels and more; leaves are those that no policy names as parent."""
    count = draw(st.sampled_from((3, 2, 4, 3, 5, 2, 1)))
    ranks = draw(st.permutations(range(count)))
    found = []
    for number in range(count):
        parent = None
        if number and draw(one_in(2)):
            parent = f"policy{draw(st.integers(0, number - 1))}"
        limit = draw(quantities(10)) if kind.has_limits and draw(one_in(2)) else NOTHING
        user_limit = draw(quantities(4)) if kind.has_limits and draw(one_in(4)) else NOTHING
        queueing = None
        if kind.can_be_strict and draw(one_in(5)):
            queueing = QueueingMode.STRICT
        found.append(
            PolicySnapshot(
                id=f"policy{number}",
                name=f"policy{number}",
                rank=ranks[number],
                parent=parent,
                reserved=_claim(draw) if kind.has_claims else draw(quantities(6)),
                limit=limit,
                user_limit=user_limit,
                weight_milli=draw(st.sampled_from((0, 500, 1000, 1000, 2000))),
                queueing=queueing,
                is_paused=kind.has_pauses and draw(one_in(10)),
            )
        )
        if found[-1].is_paused and number % 2:
            # What excludes them makes no difference.
            found[-1] = replace(found[-1], is_paused=False, is_spent=True)
    return tuple(found)


def _claim(draw: st.DrawFn) -> Quantities:
    """A reservation that names GPUs, mostly; of a parent it may be what its children have."""
    if draw(one_in(4)):
        return draw(st.one_of(st.just(NOTHING), quantities(6)))
    return Quantities.of({"gpu": 1000 * draw(st.sampled_from((4, 2, 0, 3, 6, 1, 8)))})


@st.composite
def profile_requests(draw: st.DrawFn) -> Quantities:
    found = {"gpu": draw(st.sampled_from(GPU_REQUESTS))}
    if draw(one_in(10)):
        found["gpu"] = 0
        found["cpu"] = 1000
    elif draw(one_in(4)):
        found["cpu"] = 1000 * draw(st.sampled_from((1, 2, 4)))
        if draw(one_in(3)):
            found["memory_mb"] = 1000 * draw(st.sampled_from((2, 4, 8)))
    if draw(one_in(12)):
        found["license"] = 1000
    return Quantities.of(found)


def _seldom(draw: st.DrawFn, values: tuple[int, ...], *, if_any: bool) -> int | None:
    return draw(st.sampled_from(values)) if if_any and draw(one_in(3)) else None


@st.composite
def queues(
    draw: st.DrawFn, leaves: list[str], names: list[str], kind: Family
) -> tuple[QueueSnapshot, ...]:
    links = [(leaf, name) for leaf in leaves for name in names]
    least = 2 if len(links) > 1 else 1
    chosen = draw(st.lists(st.sampled_from(links), min_size=least, max_size=6, unique=True))
    return tuple(
        QueueSnapshot(
            id=f"{policy}/{profile}",
            policy=policy,
            profile=profile,
            allows_over_quota=not (kind.has_refusals and draw(one_in(3))),
            is_paused=kind.has_pauses and draw(one_in(10)),
            min_runtime_s=_seldom(draw, (60, 15), if_any=kind.has_protection) or 0,
            max_preemptions=_seldom(draw, (1, 0), if_any=kind.has_protection),
        )
        for policy, profile in chosen
    )


@st.composite
def settings_of(draw: st.DrawFn, kind: Family) -> SettingsSnapshot:
    levels = [level for level in PreemptionMode if level is not PreemptionMode.NONE]
    calm = [PreemptionMode.NONE] * len(levels) if kind.can_be_calm else []
    return SettingsSnapshot(
        preemption=draw(st.sampled_from((*calm, *(levels if kind.can_take else ())))),
        over_quota=kind.over_quota or draw(st.sampled_from(tuple(OverQuotaMode))),
        has_consolidation=kind.is_packed or (kind.can_take and draw(one_in(4))),
    )


@st.composite
def configurations(draw: st.DrawFn, kind: Family) -> Snapshot:
    """Everything but tasks."""
    names = [f"profile{number}" for number in range(draw(st.sampled_from((2, 3, 1))))]
    pool_list = draw(pools(names, kind))
    policy_list = draw(policies(kind))
    parents = {policy.parent for policy in policy_list}
    leaves = [str(policy.id) for policy in policy_list if policy.id not in parents]
    ids = [pool.id for pool in pool_list]
    profiles = []
    for name in names:
        routing = draw(st.permutations(ids))
        length = draw(st.integers(min(1, len(ids)), len(ids)))
        profiles.append(
            ProfileSnapshot(
                id=name,
                name=name,
                request=draw(profile_requests()),
                pools=tuple(routing[:length]),
                policies=tuple(draw(st.permutations(leaves))),
                replicas=draw(st.sampled_from((1, 1, 1, 1, 1, 2, 3))),
                models=("A",) if draw(one_in(10)) else (),
            )
        )
    linked = {profile.id: set(profile.pools) for profile in profiles}
    return Snapshot(
        settings=draw(settings_of(kind)),
        now_us=NOW * SECOND,
        pools=tuple(
            replace(
                pool,
                profiles=tuple(one for one in pool.profiles if pool.id in linked[str(one)]),
                preemption=_own_level(draw, kind),
            )
            for pool in pool_list
        ),
        profiles=tuple(profiles),
        policies=policy_list,
        queues=draw(queues(leaves, names, kind)),
    )


def _own_level(draw: st.DrawFn, kind: Family) -> PreemptionMode | None:
    """Seldom a pool has a level of its own."""
    if kind.can_take and kind.can_be_calm and draw(one_in(12)):
        return draw(st.sampled_from(tuple(PreemptionMode)))
    return None


@st.composite
def queued_groups(
    draw: st.DrawFn, base: Snapshot, prefix: str, most: int, kind: Family
) -> tuple[QueuedGroup, ...]:
    """Waiting work for the queues of `base`; equal tasks are one group."""
    profiles = {profile.id: profile for profile in base.profiles}
    found = []
    number = 0
    for _ in range(draw(st.integers(min(2, most), most))):
        queue = draw(st.sampled_from(base.queues))
        profile = profiles[queue.profile]
        request = profile.request
        if draw(one_in(5)):
            request = draw(profile_requests())
        queued = QueuedGroup(
            queue=queue.id,
            request=request,
            count=0,
            heads=(),
            replicas=profile.replicas,
            priority=draw(st.sampled_from((0, 0, 0, 1, 5))),
            is_preemptible=not (kind.has_fixed and draw(one_in(3))),
            user=draw(st.sampled_from(USERS)),
            can_exceed_limit=kind.has_limits and draw(one_in(8)),
        )
        times = draw(st.lists(st.integers(0, 9), min_size=1, max_size=5))
        heads = tuple(
            QueuedTask(time * SECOND, f"{prefix}{number + place:02d}")
            for place, time in enumerate(sorted(times))
        )
        number += len(heads)
        found.append(replace(queued, heads=heads))
    return merged(found)


@st.composite
def snapshots(draw: st.DrawFn, kind: Family = EVERYTHING) -> Snapshot:
    """A configuration with running work that once fitted, and new waiting work."""
    kind = draw(some_of(kind))
    base = draw(configurations(kind))
    if not draw(one_in(10)):
        most = 8 if kind.has_claims else 6
        old = draw(queued_groups(_few_queues(draw, base, kind), "r", most, kind))
        if not draw(one_in(3)):
            old = tuple(replace(queued, is_preemptible=True) for queued in old)
        first = replace(_unbound(base), queued_groups=old)
        running = carried_out(first, decide(first)).running
        lived = [_lived(draw, group) for group in running]
        base = replace(base, running=tuple(group for group in lived if group.tasks))
        if draw(one_in(4)):
            base = replace(base, policies=draw(_changed(base.policies)))
    return replace(base, queued_groups=draw(queued_groups(base, "t", 6, kind)))


def _few_queues(draw: st.DrawFn, base: Snapshot, kind: Family) -> Snapshot:
    """Whose work ran before: all queues', or where there are claims those of few."""
    if not kind.has_claims or draw(one_in(4)):
        return base
    return replace(base, queues=base.queues[: draw(st.integers(1, 2))])


@st.composite
def cases(draw: st.DrawFn, kind: Family = EVERYTHING) -> Case:
    """A snapshot, and often one or two more passes with what happens between them."""
    snapshot = draw(snapshots(kind))
    count = draw(st.sampled_from((0, 1, *range(kind.steps + 1))))
    return Case(snapshot, tuple(draw(steps(snapshot, number)) for number in range(count)))


def any_cases() -> st.SearchStrategy[Case]:
    return st.one_of(cases(EVERYTHING), cases(TAKING), cases(PACKED))


def claimed_cases() -> st.SearchStrategy[Case]:
    return st.one_of(cases(TAKING), cases(PACKED))


@st.composite
def steps(draw: st.DrawFn, base: Snapshot, number: int) -> Step:
    return Step(
        is_drained=draw(st.booleans()),
        ends=tuple(draw(st.lists(st.integers(0, 20), max_size=3))),
        arrivals=draw(queued_groups(base, f"a{number}", 2, EVERYTHING)) if draw(one_in(2)) else (),
        seconds=draw(st.sampled_from((10, 1, 60))),
    )


def _lived(draw: st.DrawFn, group: RunningGroup) -> RunningGroup:
    """Running work with a past: when it started, what it saved; some has ended meanwhile."""
    left = [running_task for running_task in group.tasks if not draw(one_in(5))]
    return replace(group, tasks=tuple(_past(draw, running_task) for running_task in left))


def _past(draw: st.DrawFn, running_task: RunningTask) -> RunningTask:
    started = draw(st.sampled_from((10, 20, 50, 90)))
    checkpointed = started + 5 if draw(one_in(6)) else None
    return replace(
        running_task,
        started_us=started * SECOND,
        checkpointed_us=checkpointed * SECOND if checkpointed else None,
        preemptions=draw(st.sampled_from((0, 0, 0, 1))),
    )


def _unbound(base: Snapshot) -> Snapshot:
    """The same without limits, pauses and claims: whatever fits runs, as before."""
    return replace(
        base,
        policies=tuple(
            replace(one, limit=NOTHING, user_limit=NOTHING, is_paused=False, is_spent=False)
            for one in base.policies
        ),
        queues=tuple(replace(one, is_paused=False, allows_over_quota=True) for one in base.queues),
        pools=tuple(replace(one, preemption=None) for one in base.pools),
        settings=replace(base.settings, preemption=PreemptionMode.NONE),
    )


@st.composite
def _changed(draw: st.DrawFn, before: tuple[PolicySnapshot, ...]) -> tuple[PolicySnapshot, ...]:
    """An administrator lowers or raises reservations while work runs."""
    return tuple(replace(policy, reserved=draw(quantities(6))) for policy in before)
