"""Database to snapshot: every column arrives, in as many queries as ever."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import (
    DeviceShare,
    MemberPlacement,
    OverQuotaMode,
    PreemptionMode,
    QueueingMode,
    SettingsSnapshot,
    Snapshot,
)
from apps.allocation.loader import load
from apps.allocation.loader.pools import served_capacity
from apps.allocation.loader.texts import microseconds
from apps.allocation.services import run_pass
from apps.configuration.selectors import draft_document
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.provision import document_provision
from apps.nodes.models import Device, DeviceState, Node, NodeState
from apps.policies.document import as_data, parse
from apps.policies.models import LiveState, Policy, PolicyAmount, Pool, Profile, Queue
from apps.tasks.models import Attempt, Member, Task, TaskGroup
from apps.tasks.services.stop import task_abort
from tests.allocation.state import enqueue, make_node
from tests.people import Example


def snapshot() -> Snapshot:
    return load(now_us=microseconds(timezone.now())).snapshot


def amounts(**milli: int) -> Quantities:
    return Quantities.of(milli)


def test_the_settings_of_the_live_configuration_arrive(example: Example) -> None:
    LiveState.objects.update(
        is_enabled=False,
        queueing="strict",
        preemption="none",
        over_quota="fair_share",
        consolidation=True,
    )

    loaded = load(now_us=77).snapshot

    assert loaded.now_us == 77
    assert loaded.settings == SettingsSnapshot(
        is_enabled=False,
        queueing=QueueingMode.STRICT,
        preemption=PreemptionMode.NONE,
        over_quota=OverQuotaMode.FAIR_SHARE,
        has_consolidation=True,
    )


def test_a_level_of_its_own_is_provisioned_with_its_pool(example: Example, root: User) -> None:
    document = as_data(draft_document())
    document["pools"][1]["preemption"] = "none"
    document["settings"]["queueing"] = "strict"
    draft_write(document=parse(document), actor=root)
    assert {pool.preemption for pool in snapshot().pools} == {None}

    document_provision(actor=root, note="")

    loaded = snapshot()
    assert [pool.preemption for pool in loaded.pools] == [None, PreemptionMode.NONE]
    assert loaded.settings.queueing is QueueingMode.STRICT


def test_a_pool_with_its_orders_arrives(example: Example) -> None:
    Pool.objects.filter(pk=example.h100.pk).update(backfill=False, paused_at=timezone.now())
    profiles = dict(Profile.objects.values_list("name", "pk"))

    loaded = snapshot()

    pool = next(one for one in loaded.pools if one.id == example.h100.pk)
    assert (pool.name, pool.capacity) == ("H100 Half a Superpod", amounts(gpu=8000))
    assert pool.profiles == tuple(profiles[name] for name in ("2xGPU", "4xGPU", "8xGPU", "0.5xGPU"))
    assert (pool.has_backfill, pool.is_paused, pool.has_server) == (False, True, False)
    profile = next(one for one in loaded.profiles if one.id == example.profile.pk)
    assert profile.pools == (example.bare_metal.pk, example.h100.pk)
    assert profile.policies == (example.dev.pk, example.research.pk)


def test_a_profile_with_fractions_gangs_and_models_arrives(example: Example) -> None:
    Profile.objects.filter(pk=example.profile.pk).update(
        request={"gpu": "0.5", "cpu": "1/7"}, replicas=3, device_models=["H100", "H200"]
    )

    profile = next(one for one in snapshot().profiles if one.id == example.profile.pk)

    assert profile.request == amounts(gpu=500, cpu=142)
    assert (profile.replicas, profile.models) == (3, ("H100", "H200"))


def test_a_policy_with_all_its_columns_arrives(example: Example, dev_group: Group) -> None:
    parent = Policy.objects.create(name="Department", group=dev_group, position=9)
    Policy.objects.filter(pk=example.dev.pk).update(
        parent=parent, weight=3, is_strict=True, paused_at=timezone.now(), user_limit={"gpu": "2"}
    )
    PolicyAmount.objects.create(policy=example.dev, key="cpu", limit_milli=5000)
    Policy.objects.filter(pk=example.research.pk).update(removed_at=timezone.now())

    policies = {one.id: one for one in snapshot().policies}

    dev = policies[example.dev.pk]
    assert (dev.name, dev.parent, dev.weight_milli) == ("Dev", parent.pk, 3000)
    assert (dev.reserved, dev.limit) == (amounts(gpu=8000), amounts(cpu=5000, gpu=16000))
    assert (dev.user_limit, dev.queueing) == (amounts(gpu=2000), QueueingMode.STRICT)
    assert (dev.is_paused, dev.is_removed) == (True, False)
    research = policies[example.research.pk]
    assert research.is_removed
    assert research.reserved == Quantities()
    assert dev.rank < policies[parent.pk].rank


def test_a_queue_with_all_its_columns_arrives(example: Example) -> None:
    Queue.objects.filter(pk=example.dev_queue.pk).update(
        allow_over_quota=False, paused_at=timezone.now(), min_runtime_s=90, max_preemptions=2
    )

    queue = next(one for one in snapshot().queues if one.id == example.dev_queue.pk)

    assert (queue.policy, queue.profile) == (example.dev.pk, example.profile.pk)
    assert (queue.allows_over_quota, queue.is_paused) == (False, True)
    assert (queue.min_runtime_s, queue.max_preemptions) == (90, 2)


def test_a_queue_whose_profile_went_between_two_queries_is_left_out(
    example: Example, alice: User
) -> None:
    enqueue(alice, example.dev_queue)
    Profile.objects.filter(pk=example.profile.pk).update(removed_at=timezone.now())

    loaded = load(now_us=0)

    assert (loaded.snapshot.queues, loaded.snapshot.queued_groups, loaded.group_ids) == ((), (), ())
    assert run_pass().placed == 0


def test_a_node_with_its_devices_arrives(example: Example) -> None:
    node = make_node(example.h100, name="h1", gpus=4)
    Device.objects.filter(node=node, index=1).update(state=DeviceState.OCCUPIED)
    Device.objects.filter(node=node, index=3).update(state=DeviceState.MISSING)

    pool = next(one for one in snapshot().pools if one.id == example.h100.pk)

    (loaded,) = pool.nodes
    assert (loaded.id, loaded.name, loaded.model) == (node.pk, "h1", "H100")
    assert loaded.capacity == amounts(gpu=4000, cpu=64_000, memory_mb=65_536_000)
    assert (loaded.gpu_indices, loaded.unavailable_gpus) == ((0, 1, 2, 3), (1, 3))
    assert loaded.is_schedulable
    # The pool is worth what its nodes have, not what is configured.
    assert (pool.capacity, pool.has_server) == (amounts(gpu=4000), True)


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({"state": NodeState.SUSPECT}, False, id="silent"),
        pytest.param({"state": NodeState.REFUSED}, False, id="shows another host key"),
        pytest.param({"is_draining": True}, False, id="drained"),
        pytest.param({"paused_at": datetime(2026, 1, 1, tzinfo=UTC)}, False, id="paused"),
        pytest.param({}, True, id="healthy"),
    ],
)
def test_nothing_new_comes_to_a_node_that_is(
    example: Example, changes: dict[str, Any], want: bool
) -> None:
    make_node(example.h100, name="h1", **changes)

    (node,) = next(one for one in snapshot().pools if one.id == example.h100.pk).nodes

    assert node.is_schedulable is want


def test_nodes_that_were_never_reached_or_were_removed_do_not_count(example: Example) -> None:
    make_node(example.h100, name="new", state=NodeState.NEW)
    make_node(example.h100, name="gone", removed_at=timezone.now())

    pool = next(one for one in snapshot().pools if one.id == example.h100.pk)

    assert (pool.nodes, pool.has_server) == ((), False)


def test_keys_that_machines_do_not_report_bind_the_pool_and_no_node(example: Example) -> None:
    Pool.objects.filter(pk=example.h100.pk).update(capacity={"gpu": "8", "license": "3"})
    make_node(example.h100, name="h1", gpus=4)
    make_node(example.h100, name="h2", gpus=4)

    pool = next(one for one in snapshot().pools if one.id == example.h100.pk)

    assert pool.capacity == amounts(gpu=8000, license=3000)
    assert [node.capacity.get("license") for node in pool.nodes] == [3000, 3000]


def test_a_pool_counts_the_smaller_of_what_is_configured_and_what_nodes_have() -> None:
    configured = amounts(gpu=8000, cpu=10_000, license=5000)
    nodes = [amounts(gpu=3000, cpu=8000), amounts(gpu=3000, cpu=8000)]

    assert served_capacity(configured, nodes) == amounts(gpu=6000, cpu=10_000, license=5000)
    assert served_capacity(configured, []) == configured


def test_a_moved_task_is_charged_where_it_goes_to(example: Example, alice: User) -> None:
    node = make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue, 1)
    run_pass()
    members = [[node.pk, [[4, 1000], [5, 1000], [6, 1000], [7, 1000]]]]
    Attempt.objects.update(state="stopping", is_preempted=True, moves_to=members)

    (group,) = snapshot().running

    assert (group.is_stopping, group.tasks[0].stops_for) == (True, None)
    shares = tuple(DeviceShare(index, 1000) for index in range(4, 8))
    assert group.tasks[0].members == (MemberPlacement(node.pk, shares),)


def test_running_work_arrives_in_groups_with_its_devices(example: Example, alice: User) -> None:
    node = make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue, 2)
    run_pass()
    began = datetime(2026, 3, 1, 12, tzinfo=UTC)
    first, second = Attempt.objects.order_by("id")
    saved = began + timedelta(hours=1)
    Attempt.objects.filter(pk=first.pk).update(started_at=began, checkpointed_at=saved)
    Task.objects.filter(pk=first.task_id).update(preemptions=2)

    (group,) = snapshot().running

    assert (group.pool, group.policy) == (example.bare_metal.pk, example.dev.pk)
    assert (group.profile, group.queue) == (example.profile.pk, example.dev_queue.pk)
    assert (group.request, group.replicas, group.is_stopping) == (amounts(gpu=4000), 1, False)
    held = {one.task: one for one in group.tasks}
    assert set(held) == {str(first.task_id), str(second.task_id)}
    mine = held[str(first.task_id)]
    assert (mine.started_us, mine.preemptions) == (microseconds(began), 2)
    assert mine.checkpointed_us == microseconds(saved)
    devices = Member.objects.get(attempt=first).devices
    assert mine.members == (
        MemberPlacement(node.pk, tuple(DeviceShare(index, milli) for index, milli in devices)),
    )
    assert held[str(second.task_id)].started_us == microseconds(second.allocated_at)


def test_stopping_work_still_holds_its_capacity_and_says_for_whom(
    example: Example, alice: User
) -> None:
    make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue, 2)
    run_pass()
    victim, taker = Attempt.objects.order_by("id")
    Attempt.objects.filter(pk=victim.pk).update(stops_for=taker)
    task_abort(actor=alice, task=victim.task)

    groups = snapshot().running

    stopping = next(group for group in groups if group.is_stopping)
    assert [(one.task, one.stops_for) for one in stopping.tasks] == [
        (str(victim.task_id), str(taker.task_id))
    ]
    assert len(groups) == 2


def test_work_of_a_removed_queue_and_policy_still_counts(example: Example, alice: User) -> None:
    make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue)
    run_pass()
    Queue.objects.filter(pk=example.dev_queue.pk).update(removed_at=timezone.now())
    Policy.objects.filter(pk=example.dev.pk).update(removed_at=timezone.now())

    loaded = snapshot()

    assert [group.policy for group in loaded.running] == [example.dev.pk]
    assert example.dev_queue.pk not in {queue.id for queue in loaded.queues}
    assert run_pass().ran


def test_loading_makes_as_many_queries_for_1000_tasks_as_for_10(
    example: Example, alice: User
) -> None:
    make_node(example.bare_metal, name="b1")
    (task,) = enqueue(alice, example.dev_queue)

    counts = []
    for more in (9, 990):
        now = timezone.now()
        Task.objects.bulk_create(
            Task(
                name="more",
                queue_id=task.queue_id,
                task_group_id=task.task_group_id,
                owner=alice,
                state="queued",
                created_at=now,
                changed_at=now,
                submitted_at=now,
            )
            for _ in range(more)
        )
        with CaptureQueriesContext(connection) as captured:
            load(now_us=0)
        counts.append(len(captured))

    assert counts == [14, 14]
    assert TaskGroup.objects.count() == 1
    assert Node.objects.count() == 1
