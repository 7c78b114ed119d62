"""Generated configurations: hierarchies, several keys, nodes, fractions, gangs, odd orders."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from apps.allocation.engine import decide
from apps.allocation.engine.quantities import NOTHING, Quantities
from apps.allocation.engine.snapshot import (
    Head,
    Id,
    Node,
    OverQuota,
    Policy,
    Pool,
    Preemption,
    Profile,
    Queue,
    Queueing,
    Run,
    Settings,
    Snapshot,
)
from tests.allocation.engine.builders import after

GPU_REQUESTS = (250, 500, 700, 1000, 1000, 1000, 2000, 2000, 3000, 4000)


def one_in(number: int) -> st.SearchStrategy[bool]:
    """True once in `number`; Hypothesis shrinks it to False, the plain case."""
    return st.sampled_from((*[False] * (number - 1), True))


USERS = ("u1", "u2")


@dataclass(frozen=True)
class Kind:
    """What may occur; switches that make a family of configurations harder or plainer."""

    has_nodes: bool = True
    over_quota: OverQuota | None = None
    # Whether preemption may be none, and whether it may be anything else.
    can_be_calm: bool = True
    can_take: bool = True
    can_be_strict: bool = True
    can_lack_backfill: bool = True


EVERYTHING = Kind()


@st.composite
def quantities(draw: st.DrawFn, most_gpus: int, *, has_cpu: bool = True) -> Quantities:
    """Amounts per key, each of which may be left out."""
    found: dict[str, int] = {}
    if not draw(one_in(8)):
        found["gpu"] = 1000 * draw(st.sampled_from(range(most_gpus + 1)))
    if has_cpu and draw(one_in(4)):
        found["cpu"] = 1000 * draw(st.sampled_from(range(2 * most_gpus + 1)))
    return Quantities.of(found)


@st.composite
def nodes(draw: st.DrawFn, pool: int) -> tuple[Node, ...]:
    found = []
    for number in range(draw(st.integers(1, 3))):
        gpus = draw(st.sampled_from((4, 2, 1, 3, 4, 0)))
        capacity = {"gpu": 1000 * gpus}
        if draw(one_in(3)):
            capacity["cpu"] = 1000 * draw(st.sampled_from((8, 4, 2, 0)))
        found.append(
            Node(
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
def pools(draw: st.DrawFn, profiles: list[str], kind: Kind) -> tuple[Pool, ...]:
    found = []
    for number in range(draw(st.integers(1, 3))):
        members: tuple[Node, ...] = ()
        if kind.has_nodes and draw(one_in(3)):
            members = draw(nodes(number))
            capacity = {"gpu": sum(node.capacity.get("gpu") for node in members)}
            if draw(st.booleans()):
                capacity["cpu"] = sum(node.capacity.get("cpu") for node in members)
        else:
            capacity = {"gpu": 1000 * draw(st.sampled_from((4, 8, 6, 3, 2, 1, 0)))}
            if draw(one_in(3)):
                capacity["cpu"] = 1000 * draw(st.sampled_from((12, 8, 4, 1)))
        if draw(one_in(3)):
            capacity["license"] = 1000 * draw(st.sampled_from((3, 2, 1, 0)))
        found.append(
            Pool(
                id=f"pool{number}",
                name=f"pool{number}",
                capacity=Quantities.of(capacity),
                profiles=tuple(draw(st.permutations(profiles))),
                nodes=members,
                has_backfill=not (kind.can_lack_backfill and draw(one_in(4))),
                is_paused=draw(one_in(20)),
                has_server=not draw(one_in(20)),
            )
        )
    return tuple(found)


@st.composite
def policies(draw: st.DrawFn, kind: Kind) -> tuple[Policy, ...]:
    """Up to three levels; leaves are those that nobody names as parent."""
    count = draw(st.sampled_from((2, 3, 4, 5, 1)))
    ranks = draw(st.permutations(range(count)))
    found = []
    for number in range(count):
        parent = None
        if number and draw(one_in(2)):
            parent = f"policy{draw(st.integers(0, number - 1))}"
        limit = draw(quantities(10)) if draw(one_in(4)) else NOTHING
        user_limit = draw(quantities(4)) if draw(one_in(8)) else NOTHING
        queueing = None
        if kind.can_be_strict and draw(one_in(5)):
            queueing = Queueing.STRICT
        found.append(
            Policy(
                id=f"policy{number}",
                name=f"policy{number}",
                rank=ranks[number],
                parent=parent,
                reserved=draw(quantities(6)),
                limit=limit,
                user_limit=user_limit,
                weight_milli=draw(st.sampled_from((0, 500, 1000, 1000, 2000))),
                queueing=queueing,
                is_paused=draw(one_in(30)),
            )
        )
    return tuple(found)


@st.composite
def profile_requests(draw: st.DrawFn) -> Quantities:
    found = {"gpu": draw(st.sampled_from(GPU_REQUESTS))}
    if draw(one_in(10)):
        found["gpu"] = 0
        found["cpu"] = 1000
    elif draw(one_in(4)):
        found["cpu"] = 1000 * draw(st.sampled_from((1, 2, 4)))
    if draw(one_in(12)):
        found["license"] = 1000
    return Quantities.of(found)


@st.composite
def configurations(draw: st.DrawFn, kind: Kind) -> Snapshot:
    """Everything but tasks."""
    names = [f"profile{number}" for number in range(draw(st.sampled_from((2, 3, 1))))]
    pool_list = draw(pools(names, kind))
    policy_list = draw(policies(kind))
    parents = {policy.parent for policy in policy_list}
    leaves = [policy.id for policy in policy_list if policy.id not in parents]
    ids = [pool.id for pool in pool_list]
    profiles = []
    for name in names:
        routing = draw(st.permutations(ids))
        length = draw(st.integers(min(1, len(ids)), len(ids)))
        profiles.append(
            Profile(
                id=name,
                name=name,
                request=draw(profile_requests()),
                pools=tuple(routing[:length]),
                policies=tuple(draw(st.permutations(leaves))),
                replicas=draw(st.sampled_from((1, 1, 1, 2, 3))),
                models=("A",) if draw(one_in(10)) else (),
            )
        )
    links = [(leaf, name) for leaf in leaves for name in names]
    chosen = draw(
        st.lists(
            st.sampled_from(links), min_size=2 if len(links) > 1 else 1, max_size=6, unique=True
        )
    )
    queues = tuple(
        Queue(
            id=f"{policy}/{profile}",
            policy=policy,
            profile=profile,
            allows_over_quota=not draw(one_in(6)),
            is_paused=draw(one_in(30)),
            min_runtime_s=5 if draw(one_in(10)) else 0,
            max_preemptions=0 if draw(one_in(10)) else None,
        )
        for policy, profile in chosen
    )
    linked = {profile.id: set(profile.pools) for profile in profiles}
    pool_list = tuple(
        replace(pool, profiles=tuple(one for one in pool.profiles if pool.id in linked[str(one)]))
        for pool in pool_list
    )
    over_quota = kind.over_quota or draw(st.sampled_from(tuple(OverQuota)))
    levels = [level for level in Preemption if level is not Preemption.NONE]
    calm = [Preemption.NONE] * len(levels) if kind.can_be_calm else []
    preemption = draw(st.sampled_from((*calm, *(levels if kind.can_take else ()))))
    settings = Settings(
        preemption=preemption, over_quota=over_quota, has_consolidation=draw(one_in(4))
    )
    return Snapshot(
        settings=settings,
        now_us=10,
        pools=pool_list,
        profiles=tuple(profiles),
        policies=policy_list,
        queues=queues,
    )


@st.composite
def runs(draw: st.DrawFn, base: Snapshot, prefix: str, most: int) -> tuple[Run, ...]:
    """Waiting work for the queues of `base`; no two runs of one queue are equal."""
    profiles = {profile.id: profile for profile in base.profiles}
    found: dict[tuple[object, ...], Run] = {}
    number = 0
    for _ in range(draw(st.integers(2, most))):
        queue = draw(st.sampled_from(base.queues))
        profile = profiles[queue.profile]
        request = profile.request
        if draw(one_in(5)):
            request = draw(profile_requests())
        run = Run(
            queue=queue.id,
            request=request,
            count=0,
            heads=(),
            replicas=profile.replicas,
            priority=draw(st.sampled_from((0, 0, 0, 1, 5))),
            is_preemptible=not draw(one_in(5)),
            user=draw(st.sampled_from(USERS)),
            can_exceed_limit=draw(one_in(12)),
        )
        times = sorted(draw(st.lists(st.integers(0, 9), min_size=1, max_size=5)))
        heads = []
        for time in times:
            heads.append(Head(time, f"{prefix}{number:02d}"))
            number += 1
        key = (run.queue, run.request, run.priority, run.is_preemptible, run.user)
        if key not in found:
            found[key] = replace(run, heads=tuple(heads), count=len(heads))
    return tuple(found.values())


@st.composite
def snapshots(draw: st.DrawFn, kind: Kind = EVERYTHING) -> Snapshot:
    """A configuration with running work that once had room, and new waiting work."""
    base = draw(configurations(kind))
    if not draw(one_in(6)):
        old = draw(runs(base, "r", 6))
        if not draw(one_in(3)):
            old = tuple(replace(run, is_preemptible=True) for run in old)
        first = replace(_unbound(base), runs=old)
        plan = decide(first)
        tasks: list[Id] = [place.task for place in plan.placed]
        kept = [task for task in tasks if not draw(one_in(6))]
        base = replace(base, running=after(first, plan, keep=kept).running)
        if draw(one_in(4)):
            base = replace(base, policies=draw(_changed(base.policies)))
    return replace(base, runs=draw(runs(base, "t", 6)))


def _unbound(base: Snapshot) -> Snapshot:
    """The same without limits, pauses and claims: whatever fits runs, as of old."""
    policies = tuple(
        replace(one, limit=NOTHING, user_limit=NOTHING, is_paused=False) for one in base.policies
    )
    queues = tuple(replace(one, is_paused=False, allows_over_quota=True) for one in base.queues)
    settings = replace(base.settings, preemption=Preemption.NONE)
    return replace(base, policies=policies, queues=queues, settings=settings)


@st.composite
def _changed(draw: st.DrawFn, before: tuple[Policy, ...]) -> tuple[Policy, ...]:
    """Somebody lowers or raises reservations while work runs."""
    return tuple(replace(policy, reserved=draw(quantities(6))) for policy in before)
