"""The laws of docs/allocation.md, "What always holds", as far as they do without taking back."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from apps.allocation.engine import decide
from apps.allocation.engine.plan import Place, Plan
from apps.allocation.engine.snapshot import Head, Id, OverQuota, Run, Snapshot
from tests.allocation.engine.builders import after
from tests.allocation.engine.oracle import World, holds_of, world_after
from tests.allocation.engine.strategies import Kind, snapshots

CALM = Kind(can_take=False)


@given(snapshots())
def test_no_pool_is_given_more_than_it_has(snapshot: Snapshot) -> None:
    plan = decide(snapshot)

    world = world_after(snapshot, plan)
    before = world_after(snapshot, None)
    keys = {key for run in snapshot.runs for key in run.request}
    for pool in snapshot.pools:
        for key in keys:
            free = world.free(pool, key)
            assert free is None or free >= min(0, before.free(pool, key) or 0)


@given(snapshots())
def test_members_sit_on_nodes_and_gpus_that_have_room(snapshot: Snapshot) -> None:
    plan = decide(snapshot)

    world = world_after(snapshot, plan)
    pools = {pool.id: pool for pool in snapshot.pools}
    for place in plan.placed:
        _check_seats(world, place, {node.id for node in pools[place.pool].nodes})
    for pool in snapshot.pools:
        for node in pool.nodes:
            assert all(free >= 0 for free in world.gpus_free(node))
            assert (world.node_free(node, "cpu") or 0) >= 0


def _check_seats(world: World, place: Place, nodes: set[Id]) -> None:
    """Whole GPUs of one node, a fraction on one GPU, none that is out of order."""
    run = next(run for run in world.snapshot.runs for head in run.heads if head.task == place.task)
    pool = world.pools[place.pool]
    assert len(place.members) == (run.replicas if nodes else 0)
    by_id = {node.id: node for node in pool.nodes}
    models = world.profile_of(run).models
    for member in place.members:
        node = by_id[member.node]
        assert node.is_schedulable
        assert not models or node.model in models
        shares = [share.milli for share in member.devices]
        asked = run.request.get("gpu")
        assert sum(shares) == asked
        assert shares == ([asked] if 0 < asked < 1000 else [1000] * (asked // 1000))
        indices = {share.index for share in member.devices}
        assert len(indices) == len(shares)
        assert not indices & set(node.unavailable_gpus)


@given(snapshots())
def test_no_limit_is_passed(snapshot: Snapshot) -> None:
    plan = decide(snapshot)

    world = world_after(snapshot, plan)
    before = world_after(snapshot, None)
    for policy in snapshot.policies:
        for key, limit in policy.limit.items():
            counted = world.counted(policy.id, key)
            assert counted <= max(limit, before.counted(policy.id, key))
        for key, limit in policy.user_limit.items():
            for user in {run.user for run in snapshot.runs if run.user}:
                used = world.used_by(user, policy.id, key)
                assert used <= max(limit, before.used_by(user, policy.id, key))


@given(snapshots())
def test_work_that_is_never_preempted_stays_within_reservations(snapshot: Snapshot) -> None:
    plan = decide(snapshot)

    world = world_after(snapshot, plan)
    before = world_after(snapshot, None)
    for policy in snapshot.policies:
        for key, reserved in world.reserved(policy.id).items():
            fixed = world.fixed(policy.id, key)
            assert fixed <= max(reserved, before.fixed(policy.id, key))


@given(snapshots())
def test_every_waiting_task_is_named_once_with_a_reason(snapshot: Snapshot) -> None:
    plan = decide(snapshot)

    named = [place.task for place in plan.placed]
    named += [task for wait in plan.waiting for task in wait.tasks]
    want = [head.task for run in snapshot.runs for head in run.heads]
    assert sorted(named) == sorted(want)
    assert all(wait.reasons for wait in plan.waiting)
    assert sum(wait.count for wait in plan.waiting) + len(plan.placed) == sum(
        run.count for run in snapshot.runs
    )


@given(snapshots())
def test_work_starts_only_in_open_pools_of_its_profile(snapshot: Snapshot) -> None:
    plan = decide(snapshot)

    world = world_after(snapshot, plan)
    pools = {place.task: place.pool for place in plan.placed}
    for run in snapshot.runs:
        for head in run.heads:
            if head.task in pools:
                assert pools[head.task] in world.open_pools(run)
                assert not world.is_paused(run)


@given(snapshots())
def test_no_waiting_task_fits_into_what_is_left_free(snapshot: Snapshot) -> None:
    """Property 3, no waste."""
    plan = decide(snapshot)

    world = world_after(snapshot, plan)
    holds = holds_of(world)
    for run in snapshot.runs:
        for head in world.waiting(run)[:1]:
            for pool in world.open_pools(run):
                assert not _is_waste(world, run, head, pool, holds), (head, pool)


def _is_waste(
    world: World,
    run: Run,
    head: Head,
    pool: Id,
    holds: dict[Id, list[tuple[Id, dict[str, int]]]],
) -> bool:
    standing = world.standing(run)
    if standing is None or not world.within_limits(run) or world.is_paused(run):
        return False
    if not world.pools[pool].has_backfill or world.is_behind(run, head, pool):
        return False
    held: dict[str, int] = {}
    if standing[0]:
        for task, part in holds.get(pool, []):
            if task != head.task:
                for key, amount in part.items():
                    held[key] = held.get(key, 0) + amount
    return world.fits(run, world.pools[pool], held)


@given(snapshots())
def test_nobody_is_placed_before_an_equal_task_that_ranks_higher(snapshot: Snapshot) -> None:
    """Property 4, no justified envy."""
    plan = decide(snapshot)

    world = world_after(snapshot, plan)
    runs = {head.task: run for run in snapshot.runs for head in run.heads}
    places = {place.task: place for place in plan.placed}
    for place in plan.placed:
        is_fair = snapshot.settings.over_quota is OverQuota.FAIR_SHARE
        if place.waits_for or (place.standing == "over_quota" and is_fair):
            continue
        theirs = Seat(runs[place.task], place.task, place)
        for run in snapshot.runs:
            for head in run.heads:
                mine = Seat(run, head.task, places.get(head.task))
                assert not _envies(world, mine, theirs), (mine.task, theirs.task)


@dataclass(frozen=True)
class Seat:
    """A task of the snapshot's waiting work, and where it was placed, if it was."""

    run: Run
    task: Id
    place: Place | None

    @property
    def head(self) -> Head:
        return next(one for one in self.run.heads if one.task == self.task)


def _envies(world: World, mine: Seat, theirs: Seat) -> bool:
    """Whether a task that waits, or sits in a later pool, should have had the other's place."""
    place = theirs.place
    if place is None or mine.task == theirs.task or not _are_equal(world, mine.run, theirs.run):
        return False
    pools = world.open_pools(mine.run)
    if place.pool not in pools or world.is_paused(mine.run):
        return False
    if mine.place and pools.index(mine.place.pool) <= pools.index(place.pool):
        return False
    if _is_held_back(world, mine, theirs):
        return False
    key = world.serving_key(mine.run, mine.head, place.pool)
    if key > world.serving_key(theirs.run, theirs.head, place.pool):
        return False
    return _stands_as_well(world, mine, place)


def _is_held_back(world: World, mine: Seat, theirs: Seat) -> bool:
    """Whether strict order lets it not start there, or not before the other."""
    if theirs.place and world.is_behind(mine.run, mine.head, theirs.place.pool):
        return True
    policy = world.policy_of(mine.run)
    if not world.is_strict(policy) or policy != world.policy_of(theirs.run):
        return False
    return world.strict_key(theirs.run, theirs.head) < world.strict_key(mine.run, mine.head)


def _are_equal(world: World, run: Run, other: Run) -> bool:
    models = world.profile_of(run).models == world.profile_of(other).models
    return (run.request, run.replicas) == (other.request, other.replicas) and models


def _stands_as_well(world: World, mine: Seat, place: Place) -> bool:
    """Surely the same or better standing, within budgets; a plan tells lower levels not apart."""
    ranks = {"reserved": 0, "lent": 1, "over_quota": 2}
    theirs = ranks[place.standing]
    if mine.place is not None:
        rank = ranks[mine.place.standing]
    else:
        standing = world.standing(mine.run)
        if standing is None or not world.within_limits(mine.run):
            return False
        rank = 0 if not any(standing) else 2 if standing[0] else 1
    is_flat = all(policy.parent is None for policy in world.snapshot.policies)
    return rank < theirs or (rank == theirs and (rank == 0 or is_flat))


@given(snapshots())
def test_a_run_is_served_in_the_order_of_submission(snapshot: Snapshot) -> None:
    plan = decide(snapshot)

    world = world_after(snapshot, plan)
    pools = {place.task: place.pool for place in plan.placed}
    for run in snapshot.runs:
        routing = list(world.profile_of(run).pools)
        if world.is_strict(world.policy_of(run)):
            continue
        ranks = [
            routing.index(pools[head.task]) if head.task in pools else len(routing)
            for head in run.heads
        ]
        assert ranks == sorted(ranks)


@given(snapshots())
def test_strict_policies_start_nothing_before_an_earlier_task(snapshot: Snapshot) -> None:
    plan = decide(snapshot)

    world = world_after(snapshot, plan)
    pools = {place.task: place.pool for place in plan.placed}
    for run in snapshot.runs:
        for head in run.heads:
            if head.task in pools:
                assert not world.is_behind(run, head, pools[head.task])


@given(snapshots(), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(snapshot: Snapshot, random: object) -> None:
    """Property 7, second half."""
    plan = decide(snapshot)

    assert _as_sets(decide(_shuffled(snapshot, random))) == _as_sets(plan)


def _shuffled(snapshot: Snapshot, random: object) -> Snapshot:
    def mixed(rows: tuple[object, ...]) -> tuple[object, ...]:
        found = list(rows)
        random.shuffle(found)  # type: ignore[attr-defined]  # Hypothesis' Random has no type here
        return tuple(found)

    pools = tuple(replace(pool, nodes=mixed(pool.nodes)) for pool in snapshot.pools)  # type: ignore[arg-type]  # rows keep their type
    return replace(
        snapshot,
        pools=mixed(pools),  # type: ignore[arg-type]  # rows keep their type
        profiles=mixed(snapshot.profiles),  # type: ignore[arg-type]  # rows keep their type
        policies=mixed(snapshot.policies),  # type: ignore[arg-type]  # rows keep their type
        queues=mixed(snapshot.queues),  # type: ignore[arg-type]  # rows keep their type
        runs=mixed(snapshot.runs),  # type: ignore[arg-type]  # rows keep their type
        running=mixed(snapshot.running),  # type: ignore[arg-type]  # rows keep their type
    )


def _as_sets(plan: Plan) -> tuple[object, ...]:
    """Without what only numbers the rows: the place of a run in the snapshot."""
    placed = {place.task: place for place in plan.placed}
    waiting = {(wait.queue, wait.tasks): (wait.place, wait.reasons) for wait in plan.waiting}
    return placed, waiting


@given(snapshots(CALM))
def test_a_second_pass_decides_nothing(snapshot: Snapshot) -> None:
    """Property 7, first half, without taking back.

    With it the law is weaker today: a pass does not take again what it placed itself, so the next
    one may, and then others move. That such passes come to rest is tested beside this.
    """
    first = decide(snapshot)

    second = decide(after(snapshot, first))

    assert (second.placed, second.preempted, second.moved) == ((), (), ())


@given(snapshots())
def test_a_walk_makes_no_more_rounds_than_there_are_runs_and_placements(
    snapshot: Snapshot,
) -> None:
    """Property 8."""
    plan = decide(snapshot)

    assert plan.figures.walks <= 1 + len(plan.placed)
    bound = len(snapshot.runs) + len(plan.placed)
    assert plan.figures.matches <= plan.figures.walks * max(1, bound)
