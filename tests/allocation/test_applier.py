"""Plan to database: what changed meanwhile is skipped, nothing is done twice."""

import threading
from collections.abc import Callable

import pytest
from django.db import IntegrityError, connections, transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.applier import AppliedPlan, apply_plan
from apps.allocation.engine import decide
from apps.allocation.engine.model.plan import Plan
from apps.allocation.loader import LoadedSnapshot, load
from apps.allocation.services import run_pass
from apps.configuration.services.queues import profile_disconnect
from apps.nodes.models import Device, DeviceState
from apps.tasks.models import Attempt, HeldDevice, Member, Task, TaskGroup
from apps.tasks.services.queue_order import task_set_priority
from apps.tasks.services.stop import task_abort, task_dequeue
from tests.allocation.state import enqueue, make_node, states
from tests.people import Example
from tests.services.timeouts import scale_timeout


@pytest.fixture
def served(example: Example) -> Example:
    make_node(example.bare_metal, name="b1")
    return example


def decided() -> tuple[LoadedSnapshot, Plan]:
    loaded = load(now_us=0)
    return loaded, decide(loaded.snapshot)


def apply(loaded: LoadedSnapshot, plan: Plan) -> AppliedPlan:
    with transaction.atomic():
        return apply_plan(
            plan, snapshot=loaded.snapshot, group_ids=loaded.group_ids, now=timezone.now()
        )


def test_nothing_to_place_costs_nothing(served: Example) -> None:
    assert apply(*decided()) == AppliedPlan()


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(lambda actor, task: task_abort(actor=actor, task=task), "aborted", id="abort"),
        pytest.param(
            lambda actor, task: task_dequeue(actor=actor, task=task), "draft", id="dequeue"
        ),
        pytest.param(
            lambda actor, task: task_set_priority(actor=actor, task=task, priority=-5),
            "queued",
            id="another priority",
        ),
        pytest.param(
            lambda actor, task: profile_disconnect(actor=None, queue=task.queue),
            "draft",
            id="closed",
        ),
    ],
)
def test_a_task_that_changed_since_it_was_read_is_skipped(
    served: Example, alice: User, change: Callable[[User, Task], object], want: str
) -> None:
    (task,) = enqueue(alice, served.dev_queue)
    loaded, plan = decided()
    change(alice, task)

    applied = apply(loaded, plan)

    assert (len(applied.placed), applied.skipped) == (0, 1)
    assert states([task]) == [want]
    assert not Attempt.objects.exists()
    assert Task.objects.get(pk=task.pk).generation == 0


def test_of_two_tasks_the_one_that_did_not_change_is_placed(served: Example, alice: User) -> None:
    first, second = enqueue(alice, served.dev_queue, 2)
    loaded, plan = decided()
    task_abort(actor=alice, task=first)

    applied = apply(loaded, plan)

    assert (len(applied.placed), applied.skipped) == (1, 1)
    assert states([first, second]) == ["aborted", "allocated"]


def test_a_plan_that_is_applied_twice_places_once(served: Example, alice: User) -> None:
    enqueue(alice, served.dev_queue, 2)
    loaded, plan = decided()

    first, again = apply(loaded, plan), apply(loaded, plan)

    assert (len(first.placed), len(again.placed), again.skipped) == (2, 0, 2)
    assert Attempt.objects.count() == 2
    assert HeldDevice.objects.count() == 8


def test_a_device_that_is_gone_since_costs_its_task_the_place_and_no_other(
    served: Example, alice: User
) -> None:
    tasks = enqueue(alice, served.dev_queue, 2)
    loaded, plan = decided()
    index = next(place for place in plan.placed if place.task == str(tasks[0].pk))
    Device.objects.filter(index=index.members[0].devices[0].index).delete()

    applied = apply(loaded, plan)

    assert applied.skipped == 1
    assert states(tasks) == ["queued", "allocated"]


@pytest.mark.parametrize("state", [DeviceState.MISSING, DeviceState.OCCUPIED])
def test_a_device_that_may_not_be_given_out_any_more_is_not(
    served: Example, alice: User, state: DeviceState
) -> None:
    tasks = enqueue(alice, served.dev_queue, 2)
    loaded, plan = decided()
    lost = next(place for place in plan.placed if place.task == str(tasks[0].pk)).members[0]
    Device.objects.filter(index=lost.devices[0].index).update(state=state)

    applied = apply(loaded, plan)

    assert (len(applied.placed), applied.skipped) == (1, 1)
    assert states(tasks) == ["queued", "allocated"]
    assert not HeldDevice.objects.exclude(device__state=DeviceState.HEALTHY).exists()


def test_the_database_refuses_to_give_a_device_twice(served: Example, alice: User) -> None:
    enqueue(alice, served.dev_queue)
    run_pass()
    held = HeldDevice.objects.first()
    assert held is not None
    other = Member.objects.create(
        attempt=Attempt.objects.get(), rank=1, pool=served.bare_metal, node=held.device.node
    )

    with pytest.raises(IntegrityError), transaction.atomic():
        HeldDevice.objects.create(member=other, device=held.device)


def test_the_database_refuses_two_live_attempts_of_one_task(served: Example, alice: User) -> None:
    enqueue(alice, served.dev_queue)
    run_pass()
    attempt = Attempt.objects.get()
    attempt.pk, attempt.generation = None, 2

    with pytest.raises(IntegrityError), transaction.atomic():
        attempt.save(force_insert=True)


def test_a_second_admission_has_the_next_generation(served: Example, alice: User) -> None:
    (task,) = enqueue(alice, served.dev_queue)
    Task.objects.filter(pk=task.pk).update(generation=4)

    run_pass()

    assert Attempt.objects.get().generation == 5
    assert Task.objects.get().generation == 5
    assert TaskGroup.objects.get().head_id is None


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_a_task_that_somebody_is_changing_right_now_is_left_alone(
    served: Example, alice: User
) -> None:
    first, second = enqueue(alice, served.dev_queue, 2)
    loaded, plan = decided()
    is_held, may_go = threading.Event(), threading.Event()

    def abort() -> None:
        try:
            with transaction.atomic():
                task_abort(actor=alice, task=first)
                is_held.set()
                may_go.wait(scale_timeout(30))
        finally:
            connections.close_all()

    aborting = threading.Thread(target=abort)
    aborting.start()
    assert is_held.wait(scale_timeout(30))

    # It does not wait: a pass must not hang on another transaction.
    applied = apply(loaded, plan)
    may_go.set()
    aborting.join(scale_timeout(30))

    assert (len(applied.placed), applied.skipped) == (1, 1)
    assert states([first, second]) == ["aborted", "allocated"]
