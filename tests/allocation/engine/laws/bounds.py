"""Laws 1 and 2: nothing is exceeded, and no policy loses what it covers."""

from __future__ import annotations

from apps.allocation.engine.model.plan import Move, Placement, Preempt
from apps.allocation.engine.model.snapshot import Id, NodeSnapshot
from tests.allocation.engine.laws.claims import divergence_level, is_over, is_protected
from tests.allocation.engine.laws.history import Moment
from tests.allocation.engine.oracle import Entry, World, running_entries


def nothing_is_exceeded(moment: Moment) -> None:
    """Law 1: no pool, node, GPU or limit, in any key.

    What was exceeded before (somebody lowered a limit) must not get worse.
    """
    _capacity_holds(moment.world, moment.before)
    _limits_hold(moment)
    for waits in sorted({place.waits_for for place in moment.plan.placed}):
        _capacity_holds(_once_gone(moment, set(waits)), moment.before)
    for place in moment.plan.placed:
        _check_members(moment, place)


def _capacity_holds(world: World, before: World) -> None:
    for account, amount in world.sums().items():
        kind, owner, *rest = account
        if kind not in {"pool", "node", "gpu"} or amount <= before.sums().get(account, 0):
            continue
        if kind == "node" and rest[0] == "gpu" and _names_its_gpus(world, _id(owner)):
            # Each by itself: of two tasks that wait for one victim, it stops for one only, and its
            # GPUs would be counted next to those of the other, which are the same.
            continue
        if kind == "pool":
            free = world.free(world.pools[_id(owner)], str(rest[0]))
        else:
            node = next(
                one for pool in world.pools.values() for one in pool.nodes if one.id == owner
            )
            if kind == "gpu":
                free = world.gpus_free(node)[_index(rest[0])]
                assert rest[0] not in node.unavailable_gpus, f"GPU {account} is out of order"
            else:
                free = _on_node(world, node, str(rest[0]))
        assert free is None or free >= 0, f"{account} is exceeded by {-free}"


def _names_its_gpus(world: World, node: Id) -> bool:
    """Whether all that is on a node says on which GPUs."""
    return all(
        member.devices or not entry.request.get("gpu")
        for entry in world.entries
        for member in entry.members
        if member.node == node
    )


def _on_node(world: World, node: NodeSnapshot, key: str) -> int | None:
    """None: none of the pool's nodes lists the key, so it is counted for the pool alone."""
    pool = next(one for one in world.pools.values() if node in one.nodes)
    if not any(key in one.capacity for one in pool.nodes):
        return None
    return world.node_free(node, key)


def _id(value: object) -> Id:
    assert isinstance(value, int | str)
    return value


def _index(value: object) -> int:
    assert isinstance(value, int)
    return value


def _once_gone(moment: Moment, gone: set[Id]) -> World:
    """The state when those tasks have stopped, and what waited for no others has started.

    What is moved has stopped too: it finds its new place once that is free.
    """
    startable = {place.task for place in moment.plan.placed if set(place.waits_for) <= gone}
    entries = [entry for entry in moment.before.entries if entry.task not in gone]
    entries += [entry for entry in moment.world.entries if entry.task in startable]
    return World(moment.snapshot, entries, startable)


def _limits_hold(moment: Moment) -> None:
    world, before = moment.world, moment.before
    users = {entry.user for entry in world.entries if entry.user is not None}
    for policy in moment.snapshot.policies:
        for key, limit in policy.limit.items():
            counted = world.counted(policy.id, key)
            most = max(limit, before.counted(policy.id, key))
            assert counted <= most, f"{policy.id} holds {counted} {key} over {limit}"
        for key, limit in policy.user_limit.items():
            for user in users:
                used = world.used_by(user, policy.id, key)
                most = max(limit, before.used_by(user, policy.id, key))
                assert used <= most, f"{user} holds {used} {key} over {limit}"
        for key, reserved in world.reserved(policy.id).items():
            fixed = world.fixed(policy.id, key)
            most = max(reserved, before.fixed(policy.id, key))
            assert fixed <= most, f"{policy.id} has {fixed} {key} that nobody may preempt"


def _check_members(moment: Moment, place: Placement) -> None:
    """Whole GPUs of one node, a fraction on one GPU; nodes that take work, of a fitting model."""
    queued = moment.queued_groups[place.task]
    pool = moment.world.pools[place.pool]
    assert place.pool in moment.world.open_pools(queued), "a pool that is not open to it"
    assert not moment.world.is_excluded(queued), "what is paused, or has spent its budget, starts"
    assert len(place.members) == (queued.replicas if pool.nodes else 0)
    by_id = {node.id: node for node in pool.nodes}
    models = moment.world.profile_of(queued).models
    for member in place.members:
        node = by_id[member.node]
        assert node.is_schedulable, f"{node.id} takes no work"
        assert not models or node.model in models, f"{node.id} is {node.model}"
        shares = [share.milli for share in member.devices]
        gpu = queued.request.get("gpu")
        assert shares == ([gpu] if 0 < gpu < 1000 else [1000] * (gpu // 1000))
        assert len({share.index for share in member.devices}) == len(shares)


def nobody_loses_what_is_theirs(moment: Moment) -> None:
    """Law 2: what must not be preempted never is; a policy that covers its work loses nothing.

    Its work is what runs and what the pass placed: a policy that covered everything before the
    pass may get over-quota work in it, and lose work while that makes it over. Between losses
    usage only grows, so with a victim and the later ones restored each policy of its path is over.
    What was preempted for its own policy's task counts for the task that then displaced that one.
    """
    owners = {entry.task: entry for entry in running_entries(moment.snapshot)}
    taken: list[Preempt | Move] = [*moment.plan.preempted, *moment.plan.moved]
    for one in taken:
        assert not is_protected(moment.before, owners[one.task]), f"{one.task} is protected"
    victims = [owners[one.task] for one in moment.plan.preempted]
    for number, victim in enumerate(victims):
        taker = moment.queued_groups[moment.plan.preempted[number].beneficiary]
        then = moment.world.with_entries(*victims[number:])
        if victim.policy == moment.world.policy_of(taker) or _was_preempted_by_its_own(
            moment, victim
        ):
            continue
        _, path = divergence_level(moment.world, moment.world.policy_of(taker), victim.policy)
        for policy in path:
            assert is_over(then, policy, victim), f"{policy} is not over for {victim.task}"


def _was_preempted_by_its_own(moment: Moment, victim: Entry) -> bool:
    """Whether a waiting task of its own policy may have been its first taker."""
    return any(
        moment.world.policy_of(queued) == victim.policy
        and victim.pool in moment.world.open_pools(queued)
        and (queued.priority > victim.priority or not queued.is_preemptible)
        for queued in moment.snapshot.queued_groups
        if moment.world.waiting(queued)
    )
