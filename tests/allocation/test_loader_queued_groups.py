"""Waiting work in the snapshot: in order, and of each group no more than could start."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import (
    QueuedGroup as EngineRun,
)
from apps.allocation.engine.model.snapshot import (
    QueuedTask,
    Snapshot,
)
from apps.allocation.loader import load
from apps.allocation.loader.head_bounds import MOST_HEADS
from apps.allocation.loader.texts import microseconds
from apps.allocation.services import run_pass
from apps.policies.models import LiveState, PolicyAmount, Pool, Profile
from apps.tasks.models import Task
from tests.allocation.state import enqueue, make_node
from tests.people import Example


def snapshot() -> Snapshot:
    return load(now_us=microseconds(timezone.now())).snapshot


def amounts(**milli: int) -> Quantities:
    return Quantities.of(milli)


def test_waiting_work_arrives_as_runs_with_their_heads_in_order(
    example: Example, alice: User
) -> None:
    make_node(example.h100, name="h1")
    tasks = enqueue(alice, example.dev_queue, 2)
    late = timezone.now() + timedelta(hours=1)
    Task.objects.filter(pk=tasks[0].pk).update(submitted_at=late)
    (urgent,) = enqueue(alice, example.dev_queue, is_preemptible=False)

    loaded = load(now_us=0)

    queued_groups: dict[int | None, EngineRun] = dict(
        zip(loaded.group_ids, loaded.snapshot.queued_groups, strict=True)
    )
    row = Task.objects.get(pk=tasks[0].pk)
    run = queued_groups[row.task_group_id]
    assert [head.task for head in run.heads] == [str(tasks[1].pk), str(tasks[0].pk)]
    assert run.heads[1] == QueuedTask(microseconds(late), str(tasks[0].pk))
    assert (run.queue, run.request, run.count) == (example.dev_queue.pk, amounts(gpu=4000), 2)
    assert (run.replicas, run.priority, run.is_preemptible, run.user) == (1, 0, True, None)
    other = queued_groups[Task.objects.get(pk=urgent.pk).task_group_id]
    assert (other.is_preemptible, other.count) == (False, 1)


def test_of_a_long_group_as_many_heads_are_read_as_can_fit(example: Example, alice: User) -> None:
    make_node(example.h100, name="h1", gpus=64)
    make_node(example.bare_metal, name="b1")
    Pool.objects.filter(pk=example.h100.pk).update(capacity={"gpu": "64"})
    PolicyAmount.objects.all().update(limit_milli=None, reserved_milli=None)
    enqueue(alice, example.dev_queue, 30)

    (run,) = snapshot().queued_groups

    assert len(run.heads) == (64 + 8) // 4
    assert len(run.heads) < MOST_HEADS


def test_a_limit_needs_one_head_more_than_fits_and_full_pools_one(
    example: Example, alice: User, charlie: User
) -> None:
    make_node(example.h100, name="h1")
    make_node(example.bare_metal, name="b1")
    PolicyAmount.objects.filter(policy=example.dev).update(limit_milli=8000)
    enqueue(alice, example.dev_queue, 9)
    assert [len(run.heads) for run in snapshot().queued_groups] == [3]
    enqueue(charlie, example.research_queue, 9)
    while run_pass().placed:
        pass

    assert [len(run.heads) for run in snapshot().queued_groups] == [1, 1]


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        pytest.param({"preemption": "none"}, 1, id="nobody takes anything"),
        pytest.param({"preemption": "reclaim"}, 3, id="what it reserves, and one more"),
        pytest.param({"preemption": "rank"}, 4, id="whatever can be taken, and no more"),
        pytest.param({"over_quota": "fair_share"}, 4, id="rights that follow from shares"),
    ],
)
def test_capacity_that_can_be_reclaimed_counts_as_free(
    example: Example, alice: User, charlie: User, settings: dict[str, str], want: int
) -> None:
    make_node(example.bare_metal, name="b1")
    Profile.objects.filter(pk=example.profile.pk).update(request={"gpu": "2"})
    PolicyAmount.objects.update(reserved_milli=4000, limit_milli=None)
    enqueue(alice, example.dev_queue, 4)
    run_pass()
    enqueue(charlie, example.research_queue, 9)
    LiveState.objects.update(**settings)

    (run,) = snapshot().queued_groups

    assert len(run.heads) == want


def test_work_that_cannot_be_taken_is_no_free_capacity(
    example: Example, alice: User, charlie: User
) -> None:
    make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue, 2, is_preemptible=False)
    run_pass()
    enqueue(charlie, example.research_queue, 9)
    LiveState.objects.update(preemption="rank")

    (run,) = snapshot().queued_groups

    assert len(run.heads) == 1
