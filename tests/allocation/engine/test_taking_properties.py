"""The laws of a pass that takes capacity back (docs/allocation.md)."""

from __future__ import annotations

from hypothesis import given

from apps.allocation.engine import decide
from apps.allocation.engine.snapshot import Id, Preemption, Run, Running, Snapshot
from tests.allocation.engine.builders import after
from tests.allocation.engine.oracle import Entry, World, world_after
from tests.allocation.engine.strategies import Kind, snapshots

TAKING = Kind(can_be_calm=False)


@given(snapshots(TAKING))
def test_work_that_is_not_preemptible_or_protected_is_never_taken(snapshot: Snapshot) -> None:
    """Property 2, first half."""
    plan = decide(snapshot)

    victims = {one.task for one in plan.preempted}
    queues = {queue.id: queue for queue in snapshot.queues}
    for group in snapshot.running:
        for held in group.tasks:
            if held.task in victims:
                queue = queues[group.queue or ""]
                assert group.is_preemptible
                assert queue.max_preemptions is None
                assert queue.min_runtime_s == 0


@given(snapshots(TAKING))
def test_a_policy_loses_tasks_to_others_only_while_it_is_over(snapshot: Snapshot) -> None:
    """Property 2, second half: a policy that covers all its work loses nothing to another.

    Its work is what runs and what the pass gave it: one that covered everything before the pass
    may be given over-quota work in it, and lose while that makes it over. Between losses usage
    only grows, so with a victim and the later ones put back each policy of its path is over.
    """
    plan = decide(snapshot)

    before = world_after(snapshot, None)
    world = world_after(snapshot, plan)
    owners = {entry.task: entry for entry in before.entries}
    takers = {head.task: before.policy_of(run) for run in snapshot.runs for head in run.heads}
    victims = [owners[one.task] for one in plan.preempted]
    for number, victim in enumerate(victims):
        path = _path(before, victim, takers[plan.preempted[number].beneficiary])
        then = World(snapshot, [*world.entries, *victims[number:]], world.placed)
        for policy in path:
            assert victim.is_exempt or _is_over(then, policy, victim)


def _path(world: World, victim: Entry, taker: Id) -> list[Id]:
    """The victim's policies that must be over for it, from where the paths part.

    A better rank takes what is over quota, which only the victim's top policy tells.
    """
    chain = world.chain(victim.policy)
    path = [policy for policy in chain if policy not in world.chain(taker)]
    if world.snapshot.settings.preemption is Preemption.RANK:
        return [policy for policy in path if policy == chain[0]]
    return path


@given(snapshots(TAKING))
def test_every_victim_makes_room_for_a_task_that_is_placed(snapshot: Snapshot) -> None:
    """Property 5: a beneficiary in the same pool, and no room for the victim beside it."""
    plan = decide(snapshot)

    places = {place.task: place for place in plan.placed}
    for one in plan.preempted:
        assert places[one.beneficiary].pool == one.pool
        assert one.task in places[one.beneficiary].waits_for
    world = world_after(snapshot, plan)
    for entry in world_after(snapshot, None).entries:
        if entry.task in {one.task for one in plan.preempted}:
            assert not _could_stay(world, entry)


def _could_stay(world: World, entry: Entry) -> bool:
    """Whether the victim fits on its own seats beside everything placed, within every limit."""
    beside = World(world.snapshot, [*world.entries, entry], world.placed)
    pool = beside.pools[entry.pool]
    for key, amount in entry.request.items():
        free = beside.free(pool, key)
        if amount > 0 and free is not None and free < 0:
            return False
    for node in pool.nodes:
        on_node = [key for key in entry.request if (beside.node_free(node, key) or 0) < 0]
        if on_node or any(free < 0 for free in beside.gpus_free(node)):
            return False
    return all(
        beside.counted(policy, key) <= limit
        for policy in beside.chain(entry.policy)
        for key, limit in beside.policies[policy].limit.items()
        if not entry.is_exempt
    ) and all(
        beside.used_by(entry.user, policy, key) <= limit
        for policy in beside.chain(entry.policy)
        for key, limit in beside.policies[policy].user_limit.items()
    )


@given(snapshots(TAKING))
def test_passes_that_follow_one_another_come_to_rest(snapshot: Snapshot) -> None:
    """Property 9: within three times as many passes as tasks, with nothing new arriving."""
    tasks = sum(len(run.heads) for run in snapshot.runs)
    tasks += sum(len(group.tasks) for group in snapshot.running)
    at = snapshot

    for _ in range(3 * tasks + 1):
        plan = decide(at)
        if not plan.placed and not plan.preempted:
            return
        at = after(at, plan, is_drained=True)

    raise AssertionError("passes go on and on")


@given(snapshots(TAKING))
def test_covered_work_waits_for_no_single_task_that_it_may_take(snapshot: Snapshot) -> None:
    """Property 6, with one victim: more of them are weighed by the rights of each moment."""
    plan = decide(snapshot)

    world = world_after(snapshot, plan)
    for run in snapshot.runs:
        for head in world.waiting(run)[:1]:
            standing = world.standing(run)
            if standing is None or any(standing) or not run.is_preemptible:
                continue
            if world.is_paused(run) or not world.within_limits(run):
                continue
            for pool in world.open_pools(run):
                if world.pools[pool].has_backfill and not world.is_behind(run, head, pool):
                    victim = _single_victim(world, run, pool)
                    assert victim is None, (head.task, victim)


def _single_victim(world: World, run: Run, pool: Id) -> Id | None:
    """A running task of another policy, over at every level, whose room alone would do."""
    queues = {queue.id: queue for queue in world.snapshot.queues}
    mine = world.chain(world.policy_of(run))
    for group in world.snapshot.running:
        queue = queues[group.queue or ""]
        path = [policy for policy in world.chain(group.policy) if policy not in mine]
        is_safe = not group.is_preemptible or queue.min_runtime_s or queue.max_preemptions == 0
        if group.pool != pool or not path or is_safe:
            continue
        if not group.can_exceed_limit and not all(
            _is_over(world, policy, group) for policy in path
        ):
            continue
        for held in group.tasks:
            left = [entry for entry in world.entries if entry.task != held.task]
            without = World(world.snapshot, left, world.placed)
            if len(left) < len(world.entries) and without.fits(run, world.pools[pool], {}):
                return held.task
    return None


def _is_over(world: World, policy: Id, group: Running | Entry) -> bool:
    """For running work, which usage includes."""
    reserved = world.reserved(policy)
    named = [key for key in group.request.positive() if key in reserved]
    return not named or any(world.usage(policy, key) > reserved[key] for key in named)
