"""What the loader keeps between passes never shows: snapshots are those of a new process."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.loader import load, pools, running_groups
from apps.allocation.loader.row_cache import RowCache
from apps.allocation.services import run_pass
from apps.configuration.services.pools import pool_pause, pool_resume
from apps.execution.protocol.answers import DeviceProcess
from apps.execution.services.inventory import (
    node_mark_healthy,
    node_record_miss,
    node_store_occupied,
)
from apps.nodes.models import Device, DeviceState, Node
from apps.nodes.services import node_change, node_drain, node_pause, node_resume
from apps.policies.models import LiveState, Policy, PolicyAmount, PoolLink, Profile
from apps.tasks.lifecycle.states import AttemptState
from apps.tasks.models import Attempt, Task
from apps.tasks.services.stop import task_abort
from tests.allocation.plain_loader import grouped, plain_pools, plain_running
from tests.allocation.state import begin, end, enqueue, make_node
from tests.people import Example

KEPT: tuple[RowCache[Any, Any, Any], ...] = (running_groups._attempts, pools._pools, pools._nodes)
STEPS = 40


class Worker:
    """A process with a memory of its own: what it read last may be long ago."""

    def __init__(self) -> None:
        self._memory: list[Any] = [{} for _ in KEPT]

    @contextmanager
    def working(self) -> Iterator[None]:
        own = [one._kept for one in KEPT]
        for one, kept in zip(KEPT, self._memory, strict=True):
            one._kept = kept
        try:
            yield
        finally:
            self._memory = [one._kept for one in KEPT]
            for one, kept in zip(KEPT, own, strict=True):
                one._kept = kept


class World:
    """What happens to an installation, by the services that do it."""

    def __init__(self, example: Example, alice: User, charlie: User, seed: int) -> None:
        self.example = example
        self.actor = alice
        self.lines = [(alice, example.dev_queue), (charlie, example.research_queue)]
        self.chance = random.Random(seed)  # not a secret
        self.nodes = [make_node(example.bare_metal, name=f"b{number}") for number in range(2)]
        self.nodes.append(make_node(example.h100, name="h1"))
        self.things: list[Callable[[], object]] = [
            self.enqueue,
            self.enqueue,
            self.run_pass,
            self.run_pass,
            self.begin,
            self.end,
            self.abort,
            self.touch_attempt,
            self.touch_task,
            self.change_node,
            self.change_devices,
            self.change_configuration,
            self.roll_back,
        ]

    def happen(self) -> None:
        self.do_one_of(self.things)

    def do_one_of(self, things: list[Callable[[], object]]) -> None:
        self.chance.choice(things)()

    def node(self) -> Node:
        return Node.objects.get(pk=self.chance.choice(self.nodes).pk)

    def attempt(self, *states: str) -> Attempt | None:
        found = list(Attempt.objects.filter(state__in=states).order_by("pk"))
        return self.chance.choice(found) if found else None

    def enqueue(self) -> None:
        actor, queue = self.chance.choice(self.lines)
        preemptible = self.chance.random() < 0.8
        enqueue(actor, queue, self.chance.randint(1, 2), is_preemptible=preemptible)

    def run_pass(self) -> None:
        run_pass()

    def begin(self) -> None:
        attempt = self.attempt(AttemptState.ALLOCATED)
        if attempt is not None and not attempt.blocked_by.exists():
            begin(attempt)

    def end(self) -> None:
        attempt = self.attempt(AttemptState.RUNNING, AttemptState.STOPPING)
        if attempt is not None:
            end(attempt)

    def abort(self) -> None:
        attempt = self.attempt(AttemptState.ALLOCATED, AttemptState.RUNNING)
        if attempt is not None:
            task_abort(actor=attempt.task.owner, task=attempt.task)

    def touch_attempt(self) -> None:
        attempt = self.attempt(AttemptState.RUNNING, AttemptState.STOPPING)
        if attempt is None:
            return
        other = self.attempt(AttemptState.ALLOCATED, AttemptState.RUNNING)
        changes: list[dict[str, Any]] = [
            {"checkpointed_at": timezone.now()},
            {"started_at": timezone.now() - timedelta(minutes=3)},
            {"stops_for": other},
            {"moves_to": [[self.nodes[0].pk, [[3, 1000], [4, 500]]]]},
        ]
        Attempt.objects.filter(pk=attempt.pk).update(**self.chance.choice(changes))

    def touch_task(self) -> None:
        attempt = self.attempt(AttemptState.RUNNING, AttemptState.ALLOCATED)
        if attempt is not None:
            changes: list[dict[str, Any]] = [
                {"priority": 3},
                {"preemptions": 2},
                {"is_restartable": False},
                {"submitted_at": timezone.now()},
            ]
            Task.objects.filter(pk=attempt.task_id).update(**self.chance.choice(changes))

    def change_node(self) -> None:
        node = self.node()
        pool = self.chance.choice([self.example.h100, self.example.bare_metal])
        self.do_one_of(
            [
                lambda: node_pause(actor=self.actor, node=node, reason="test"),
                lambda: node_drain(actor=self.actor, node=node),
                lambda: node_resume(actor=self.actor, node=node),
                lambda: node_change(actor=self.actor, node=node, values={"pool": pool}),
                lambda: node_record_miss(node, "gone", silent_s=0, is_refused=True),
                lambda: node_mark_healthy(node),
                lambda: Node.objects.filter(pk=node.pk).update(
                    capacity={"gpu": "7", "cpu": "1/7"}, gpu_model="H200"
                ),
            ]
        )

    def change_devices(self) -> None:
        node = self.node()
        uuid = f"GPU-{node.name}-{self.chance.randint(0, 3)}"
        devices = Device.objects.filter(node=node)
        self.do_one_of(
            [
                lambda: node_store_occupied(node, (DeviceProcess(uuid, 1, 1, None),)),
                lambda: node_store_occupied(node, ()),
                lambda: devices.filter(uuid=uuid).update(state=DeviceState.MISSING),
                lambda: devices.update(state=DeviceState.HEALTHY),
                lambda: Device.objects.create(
                    node=node, index=100 + devices.count(), uuid=f"new-{devices.count()}"
                ),
            ]
        )

    def change_configuration(self) -> None:
        pool, policy = self.example.h100, self.example.dev
        self.do_one_of(
            [
                lambda: pool_pause(actor=self.actor, pool=pool, reason=""),
                lambda: pool_resume(actor=self.actor, pool=pool),
                lambda: pool.__class__.objects.filter(pk=pool.pk).update(
                    capacity={"gpu": "6", "license": "2"}, backfill=False, preemption="rank"
                ),
                lambda: Policy.objects.filter(pk=policy.pk).update(user_limit={"gpu": "16"}),
                lambda: Policy.objects.filter(pk=policy.pk).update(user_limit={}),
                lambda: PolicyAmount.objects.update(reserved_milli=4000),
                lambda: PoolLink.objects.filter(profile=self.example.profile).update(
                    execution_rank=self.chance.randint(0, 9)
                ),
                lambda: Profile.objects.filter(pk=self.example.profile.pk).update(
                    request={"gpu": "2"}
                ),
                lambda: LiveState.objects.update(preemption="priority"),
            ]
        )

    def roll_back(self) -> None:
        """Reads that are then rolled back, as a preview does."""
        with transaction.atomic():
            self.change_node()
            self.change_devices()
            self.touch_attempt()
            load(now_us=0)
            transaction.set_rollback(True)


def as_new() -> Snapshot:
    """What a process reads that has just begun."""
    with Worker().working():
        return in_order(load(now_us=0).snapshot)


def in_order(snapshot: Snapshot) -> Snapshot:
    """Usual shapes aside, which depend on the hour."""
    return replace(snapshot, usual=())


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_the_snapshot_is_that_of_a_new_process(
    example: Example, alice: User, charlie: User, seed: int
) -> None:
    world = World(example, alice, charlie, seed)
    workers = [Worker(), Worker()]
    seen = 0

    for _ in range(STEPS):
        world.happen()
        # Each of the two reads only now and then; meanwhile the other one may have written.
        with world.chance.choice(workers).working():
            snapshot = in_order(load(now_us=0).snapshot)
        assert snapshot == as_new()
        assert snapshot.pools == plain_pools()
        assert grouped(snapshot.running) == plain_running()
        seen = max(seen, sum(len(group.tasks) for group in snapshot.running))

    assert seen > 1


def test_what_did_not_change_is_built_once(example: Example, alice: User) -> None:
    node = make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue, 2)
    run_pass()
    before = load(now_us=0).snapshot
    Attempt.objects.filter(pk=Attempt.objects.order_by("pk")[0].pk).update(
        checkpointed_at=timezone.now()
    )

    after = load(now_us=0).snapshot

    pairs = list(zip(before.running[0].tasks, after.running[0].tasks, strict=True))
    assert [old is new for old, new in pairs] == [False, True]
    assert all(old is new for old, new in zip(before.pools, after.pools, strict=True))

    Device.objects.filter(node=node, index=0).update(state=DeviceState.OCCUPIED)
    last = load(now_us=0).snapshot

    changed = [new.id for old, new in zip(after.pools, last.pools, strict=True) if old is not new]
    assert changed == [example.bare_metal.pk]


def test_rows_that_are_gone_are_forgotten() -> None:
    built: list[int] = []

    def build(row: tuple[int]) -> int:
        built.append(row[0])
        return -row[0]

    unchanged: RowCache[str, tuple[int], int] = RowCache(build)

    assert unchanged.of([("a", (1,)), ("b", (2,))]) == [-1, -2]
    assert unchanged.of([("b", (2,))]) == [-2]
    assert unchanged.of([("b", (3,)), ("a", (1,))]) == [-3, -1]
    assert built == [1, 2, 3, 1]
