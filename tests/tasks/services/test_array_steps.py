"""What a step stores of arrays, and elements that differ from the rest of their array."""

import pytest
from django.utils import timezone
from pytest_django import Settings

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.configuration.services.queues import profile_connect
from apps.core.errors import Conflict
from apps.policies.models import Profile, Queue
from apps.tasks.models import Task
from apps.tasks.services import arrays
from apps.tasks.services.arrays import arrays_advance
from apps.tasks.services.dependencies import Dependency, task_set_dependencies
from apps.tasks.services.enqueue import queue_bounds
from apps.tasks.services.enqueue.bulk import tasks_enqueue_many
from apps.tasks.services.enqueue.submission import (
    task_change,
    task_create,
    task_enqueue,
    task_run_again,
    task_submit,
)
from apps.tasks.services.holds import task_hold, task_release
from apps.tasks.services.queue_order import task_change_queue, task_set_priority
from apps.tasks.services.stop import task_abort, task_dequeue
from apps.tasks.task_spec import spec_of
from tests.allocation.state import enqueue
from tests.people import Example
from tests.tasks.services.array_steps import array_of, counts, finish

pytestmark = pytest.mark.django_db


def test_arrays_of_one_task_group_share_what_may_wait(example: Example, alice: User) -> None:
    first, second = (array_of(alice, example, 1500) for _ in range(2))

    arrays_advance()
    arrays_advance()

    assert counts(first) == {"queued": 1000}
    assert counts(second) == {}


def test_a_step_stores_a_bounded_number_of_elements(example: Example, alice: User) -> None:
    several = [array_of(alice, example, 1500) for _ in range(3)]
    for priority, array in enumerate(several):
        task_set_priority(actor=alice, task=array, priority=-priority)

    arrays_advance()
    assert [sum(counts(array).values()) for array in several] == [1000, 1000, 0]

    arrays_advance()
    assert [sum(counts(array).values()) for array in several] == [1000, 1000, 1000]


def test_an_array_on_hold_leaves_the_others_of_its_group_alone(
    example: Example, alice: User
) -> None:
    first, second = (array_of(alice, example, 1500) for _ in range(2))
    arrays_advance()
    task_hold(actor=alice, task=first)

    arrays_advance()

    assert counts(second) == {"queued": 1000}


def test_owners_take_turns_where_a_step_is_full(example: Example, alice: User, bob: User) -> None:
    several = [array_of(alice, example, 1500) for _ in range(3)]
    for priority, array in enumerate(several):
        task_set_priority(actor=alice, task=array, priority=-priority)
    other = array_of(bob, example, 1500)
    task_set_priority(actor=bob, task=other, priority=-9)

    arrays_advance()

    assert [sum(counts(array).values()) for array in (*several, other)] == [1000, 0, 0, 1000]


def test_an_array_of_which_other_tasks_wait_for_an_element_is_not_dequeued(
    example: Example, alice: User
) -> None:
    array, after = array_of(alice, example, 2), array_of(alice, example, 1)
    arrays_advance()
    task_dequeue(actor=alice, task=after)
    waiting = task_enqueue(actor=alice, task=after, queue=example.dev_queue.name)
    element = array.elements.get(array_index=0)
    task_set_dependencies(actor=alice, task=waiting, after=[Dependency(element.pk)])

    with pytest.raises(Conflict, match="Other tasks wait for elements"):
        task_dequeue(actor=alice, task=array)
    with pytest.raises(Conflict, match="their array does"):
        task_set_dependencies(actor=alice, task=element, after=[Dependency(array.pk)])


def test_an_element_that_is_on_hold_alone_stays_so(example: Example, alice: User) -> None:
    array = array_of(alice, example, 2)
    arrays_advance()
    element = array.elements.get(array_index=0)
    Task.objects.filter(pk=element.pk).update(ineligible_code="admin_hold")

    task_hold(actor=alice, task=array)
    task_release(actor=alice, task=array)

    codes = array.elements.order_by("array_index").values_list("ineligible_code", flat=True)
    assert list(codes) == ["admin_hold", ""]


def test_elements_in_another_queue_keep_their_group(
    example: Example, alice: User, root: User
) -> None:
    profile = Profile.objects.get(name="8xGPU")
    other = profile_connect(actor=root, policy=example.dev, profile=profile)
    array = array_of(alice, example, 2)
    arrays_advance()
    element = array.elements.get(array_index=0)
    task_change_queue(actor=alice, task=element, queue=other.name)
    element.refresh_from_db()
    group = element.task_group_id

    task_set_priority(actor=alice, task=array, priority=-1)

    element.refresh_from_db()
    assert element.task_group_id == group


def test_no_element_is_stored_in_a_queue_that_is_closed(example: Example, alice: User) -> None:
    array = array_of(alice, example, 2)
    Queue.objects.filter(pk=example.dev_queue.pk).update(removed_at=timezone.now())

    arrays_advance()

    assert counts(array) == {}


def test_an_element_that_has_to_run_again_is_on_hold_with_its_array(
    served: Example, alice: User
) -> None:
    values = {"name": "t", "queue": served.dev_queue.name, "command": ["true"], "retries": 1}
    array = task_submit(actor=alice, spec=spec_of({**values, "array": {"size": 1}}))
    run_pass()
    task_hold(actor=alice, task=array)

    finish(array, 1)
    run_pass()

    assert array.elements.get().ineligible_code == "on_hold"
    assert counts(array) == {"queued": 1}
    task_release(actor=alice, task=array)
    run_pass()
    assert counts(array) == {"allocated": 1}


def test_one_element_that_runs_again_takes_the_bytes_of_one(served: Example, alice: User) -> None:
    array = array_of(alice, served, 1000)
    arrays_advance()
    task_abort(actor=alice, task=array)

    one = task_run_again(actor=alice, task=array.elements.get(array_index=2))

    assert one.size_bytes * 400 < array.size_bytes
    task_dequeue(actor=alice, task=one)
    changed = task_change(actor=alice, task=one, changes={"name": "other"})
    assert changed.size_bytes * 400 < array.size_bytes


def test_the_arrays_of_a_user_that_have_not_ended_are_bounded(
    example: Example, alice: User, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_bounds, "MOST_ARRAYS", 3)
    values = {"name": "t", "command": ["true"], "array": {"size": 1}}
    spec = spec_of({**values, "queue": example.dev_queue.name})
    draft = task_create(actor=alice, spec=spec_of(values))
    first = task_submit(actor=alice, spec=spec)

    many = tasks_enqueue_many(actor=alice, items=[spec] * 3)

    refused = "Arrays of one user that have not ended may be 3 at most"
    assert [str(one).startswith(refused) for one in many] == [False, False, True]
    with pytest.raises(Conflict, match=refused):
        task_submit(actor=alice, spec=spec)
    with pytest.raises(Conflict, match=refused):
        task_enqueue(actor=alice, task=draft, queue=example.dev_queue.name)
    task_submit(actor=bob, spec=spec)
    # One that waits already may move.
    task_set_priority(actor=alice, task=first, priority=-1)
    task_abort(actor=alice, task=first)
    task_enqueue(actor=alice, task=draft, queue=example.dev_queue.name)
    with pytest.raises(Conflict, match=refused):
        task_run_again(actor=alice, task=first)


def test_the_waiting_elements_of_a_user_are_bounded(
    example: Example, alice: User, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "MOST_OF_OWNER", 30)
    several = [array_of(alice, example, 20) for _ in range(3)]
    for priority, array in enumerate(several):
        task_set_priority(actor=alice, task=array, priority=-priority)
    other = array_of(bob, example, 20)

    arrays_advance()
    arrays_advance()

    assert [sum(counts(array).values()) for array in (*several, other)] == [20, 10, 0, 20]
    # Those on hold wait, too.
    task_hold(actor=alice, task=several[0])
    arrays_advance()
    assert [sum(counts(array).values()) for array in several] == [20, 10, 0]


def test_the_elements_of_one_user_leave_others_their_tasks(
    example: Example, alice: User, bob: User, settings: Settings
) -> None:
    settings.RPM_WAITING_PER_QUEUE = settings.RPM_WAITING_PER_PERSON = 10
    array_of(alice, example, 100)
    arrays_advance()

    tasks = enqueue(bob, example.dev_queue, 9)

    assert len(tasks) == 9
    with pytest.raises(Conflict, match="lets at most 10 tasks"):
        enqueue(bob, example.dev_queue, 1)


def test_a_moved_element_waits_in_the_group_of_its_own_priority(
    example: Example, alice: User, root: User
) -> None:
    profile = Profile.objects.get(name="8xGPU")
    other = profile_connect(actor=root, policy=example.dev, profile=profile)
    array = array_of(alice, example, 2)
    arrays_advance()
    task_set_priority(actor=alice, task=array.elements.get(array_index=0), priority=-7)
    array.refresh_from_db()

    task_change_queue(actor=alice, task=array, queue=other.name)

    for element in array.elements.select_related("task_group"):
        assert element.queue_id == other.pk
        assert element.task_group is not None
        assert element.task_group.priority == element.priority
    assert sorted(array.elements.values_list("priority", flat=True)) == [-7, 0]


def test_a_step_without_time_left_leaves_the_rest_to_the_next(
    example: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (array_of(alice, example, 2) for _ in range(2))
    seconds = iter((0.0, 1.0, 3.0))
    monkeypatch.setattr(arrays, "STEP_S", 2.0)
    monkeypatch.setattr(arrays, "monotonic", lambda: next(seconds))

    arrays_advance()

    monkeypatch.undo()
    assert [counts(one) for one in (first, second)] == [{"queued": 2}, {}]
