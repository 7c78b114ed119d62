"""Arrays: one task whose elements are stored, started and ended one after the other."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.configuration.services.queues import profile_connect
from apps.core.errors import BadInput, Conflict, NotAllowed
from apps.execution.container_specs import container_spec
from apps.policies.models import Profile
from apps.tasks.models import Member, Task
from apps.tasks.selectors.secrets import task_secrets
from apps.tasks.selectors.visibility import tasks_visible_to
from apps.tasks.services.dependencies import Dependency, task_set_dependencies
from apps.tasks.services.enqueue.submission import (
    task_change,
    task_enqueue,
    task_run_again,
    task_submit,
)
from apps.tasks.services.holds import task_hold, task_release
from apps.tasks.services.queue_order import task_change_queue, task_set_priority
from apps.tasks.services.stop import task_abort, task_dequeue, tasks_return_to_draft
from apps.tasks.task_spec import spec_of
from tests.allocation.state import make_node
from tests.people import Example
from tests.tasks.services.array_steps import array_of, counts, finish, stop_all, stored

pytestmark = pytest.mark.django_db


def test_an_array_is_one_row_until_a_pass_needs_elements(served: Example, alice: User) -> None:
    array = array_of(alice, served, 3)
    assert Task.objects.count() == 1

    run_pass()

    assert counts(array) == {"allocated": 2, "queued": 1}
    array.refresh_from_db()
    assert (array.state, array.generation) == ("queued", 0)


def test_an_array_starts_after_what_it_waits_for_and_not_again(
    served: Example, alice: User
) -> None:
    other = array_of(alice, served, 1)
    array = array_of(alice, served, 2)
    after = [Dependency(other.pk)]
    task_set_dependencies(actor=alice, task=array, after=after)

    run_pass()
    assert (counts(other), counts(array)) == ({"allocated": 1}, {})
    finish(other, 0)
    for _ in range(2):
        run_pass()

    assert counts(array) == {"allocated": 2}
    with pytest.raises(Conflict):
        task_set_dependencies(actor=alice, task=array, after=[])


def test_an_array_ends_when_all_its_elements_have_ended(served: Example, alice: User) -> None:
    array = array_of(alice, served, 3)
    run_pass()
    finish(array, 0, 0)
    run_pass()
    finish(array, 0)
    run_pass()

    array.refresh_from_db()
    assert array.state == "completed"
    assert array.ended_at is not None
    assert stored(array) == [0, 1, 2]


def test_an_array_fails_with_one_of_its_elements(served: Example, alice: User) -> None:
    array = array_of(alice, served, 2)
    run_pass()
    finish(array, 0, 1)
    run_pass()

    array.refresh_from_db()
    assert (array.state, array.state_detail) == ("failed", "1 of 2 elements failed")


def test_no_more_elements_are_live_than_the_limit_lets(served: Example, alice: User) -> None:
    array = array_of(alice, served, 3, limit=1)

    for _ in range(3):
        run_pass()
        assert counts(array)["allocated"] == 1
        assert counts(array)["queued"] == 0
        finish(array, 0)
    run_pass()

    array.refresh_from_db()
    assert array.state == "completed"


def test_an_element_is_a_copy_with_its_index(served: Example, alice: User) -> None:
    spec = spec_of(
        {
            "name": "sweep",
            "queue": served.dev_queue.name,
            "command": ["train"],
            "environment": {"A": "b"},
            "secrets": {"TOKEN": "geheim"},
            "tags": ["x"],
            "array": {"size": 2},
        }
    )
    array = task_submit(actor=alice, spec=spec)

    run_pass()

    second = array.elements.get(array_index=1)
    assert (second.name, second.spec.command, second.tags) == ("sweep", ["train"], ["x"])
    assert second.submitted_at == array.submitted_at
    assert task_secrets(second) == {"TOKEN": "geheim"}
    assert second.owner_id == alice.pk
    # The array counts for all of them.
    assert second.size_bytes == 0
    assert array.size_bytes > 3 * 1000


def test_an_element_finds_its_index(served: Example, alice: User) -> None:
    array = array_of(alice, served, 2)
    run_pass()
    member = Member.objects.select_related(
        "attempt__task__owner", "attempt__queue__profile", "node__pool"
    ).get(attempt__task__array=array, attempt__task__array_index=1)

    environment = container_spec(member).environment

    assert environment["RPM_ARRAY_ID"] == str(array.pk)
    assert environment["RPM_ARRAY_INDEX"] == "1"
    assert environment["RPM_ARRAY_SIZE"] == "2"


def test_aborting_an_array_ends_all_of_it(served: Example, alice: User) -> None:
    array = array_of(alice, served, 2000)
    run_pass()

    task_abort(actor=alice, task=array)

    assert counts(array) == {"stopping": 2, "aborted": 998}
    stop_all(array)
    run_pass()
    array.refresh_from_db()
    assert array.state == "aborted"
    assert counts(array) == {"aborted": 1000}


def test_aborting_one_element_leaves_the_others(served: Example, alice: User) -> None:
    array = array_of(alice, served, 3)
    run_pass()

    task_abort(actor=alice, task=array.elements.get(array_index=2))

    assert counts(array) == {"allocated": 2, "aborted": 1}
    finish(array, 0, 0)
    run_pass()
    array.refresh_from_db()
    assert (array.state, array.state_detail) == ("aborted", "1 of 3 elements were aborted")


def test_nothing_more_of_an_array_on_hold_starts(served: Example, alice: User) -> None:
    array = array_of(alice, served, 4, limit=3)
    run_pass()

    task_hold(actor=alice, task=array)

    finish(array, 0, 0)
    run_pass()
    assert counts(array) == {"completed": 2, "queued": 1}
    task_release(actor=alice, task=array)
    run_pass()
    assert counts(array) == {"completed": 2, "allocated": 2}


def test_an_array_leaves_its_queue_before_an_element_started(example: Example, alice: User) -> None:
    array = array_of(alice, example, 3)
    run_pass()
    assert counts(array) == {"queued": 3}

    task_dequeue(actor=alice, task=array)

    assert (array.state, array.array_next) == ("draft", 0)
    assert Task.objects.count() == 1
    make_node(example.bare_metal, name="b1")
    task_enqueue(actor=alice, task=array, queue=example.dev_queue.name)
    run_pass()
    assert counts(array) == {"allocated": 2, "queued": 1}


def test_an_array_stays_in_its_queue_once_an_element_started(served: Example, alice: User) -> None:
    array = array_of(alice, served, 3)
    run_pass()

    with pytest.raises(Conflict, match="have started: abort it instead"):
        task_dequeue(actor=alice, task=array)
    with pytest.raises(Conflict, match="abort it instead"):
        task_dequeue(actor=alice, task=array.elements.get(array_index=2))

    assert counts(array) == {"allocated": 2, "queued": 1}


def test_the_priority_of_an_array_is_that_of_its_elements(served: Example, alice: User) -> None:
    array = array_of(alice, served, 3)
    run_pass()
    array.refresh_from_db()

    task_set_priority(actor=alice, task=array, priority=-5)

    waiting = array.elements.get(state="queued")
    assert (waiting.priority, waiting.task_group_id) == (-5, array.task_group_id)


def test_an_array_moves_with_its_elements(served: Example, alice: User, root: User) -> None:
    other = profile_connect(
        actor=root, policy=served.dev, profile=Profile.objects.get(name="8xGPU")
    )
    array = array_of(alice, served, 3)
    run_pass()
    array.refresh_from_db()

    task_change_queue(actor=alice, task=array, queue=other.name)

    waiting = array.elements.get(state="queued")
    assert (waiting.queue_id, waiting.task_group_id) == (other.pk, array.task_group_id)


def test_elements_follow_their_array_through_a_closed_queue(served: Example, alice: User) -> None:
    array = array_of(alice, served, 3)
    run_pass()
    tasks_return_to_draft(queue_ids=[served.dev_queue.pk], reason="The queue was closed.")
    array.refresh_from_db()
    assert (array.state, counts(array)["draft"]) == ("draft", 1)
    with pytest.raises(Conflict, match="stored already"):
        task_change(actor=alice, task=array, changes={"name": "other"})

    task_enqueue(actor=alice, task=array, queue=served.dev_queue.name)

    assert counts(array) == {"allocated": 2, "queued": 1}


def test_an_array_runs_again_as_a_new_one_of_what_did_not_complete(
    served: Example, alice: User
) -> None:
    array = array_of(alice, served, 3, limit=2)
    run_pass()
    finish(array, 0, 1)
    run_pass()
    task_abort(actor=alice, task=array)
    stop_all(array)
    array.refresh_from_db()

    again = task_run_again(actor=alice, task=array)

    assert again.pk != array.pk
    with pytest.raises(Conflict, match="runs again already"):
        task_run_again(actor=alice, task=array, is_all=True)
    run_pass()
    assert stored(again) == [1, 2]
    element = again.elements.get(array_index=2)
    assert element.spec.array is not None
    assert (element.spec.array.size, again.array_limit) == (3, 2)
    finish(again, 0, 0)
    run_pass()
    again.refresh_from_db()
    assert again.state == "completed"
    with pytest.raises(Conflict, match="All elements of this array completed"):
        task_run_again(actor=alice, task=again)
    every = task_run_again(actor=alice, task=again, is_all=True)
    run_pass()
    finish(every, 0, 0)
    run_pass()
    one = task_run_again(actor=alice, task=again.elements.get(array_index=2))
    run_pass()
    assert (stored(every), stored(one)) == ([1, 2], [2])


def test_an_array_belongs_to_its_owner(
    served: Example, alice: User, bob: User, charlie: User
) -> None:
    array = array_of(alice, served, 3)
    run_pass()
    element = array.elements.get(array_index=2)

    for task in (array, element):
        with pytest.raises(NotAllowed):
            task_abort(actor=bob, task=task)
        assert tasks_visible_to(bob).filter(pk=task.pk).exists()
        assert not tasks_visible_to(charlie).filter(pk=task.pk).exists()


def test_a_draft_of_chosen_elements_keeps_them_through_a_change(
    example: Example, alice: User
) -> None:
    array = array_of(alice, example, 3)
    run_pass()
    task_abort(actor=alice, task=array.elements.get(array_index=0))
    task_abort(actor=alice, task=array)
    one = task_run_again(actor=alice, task=array.elements.get(array_index=2))
    task_dequeue(actor=alice, task=one)

    changed = task_change(actor=alice, task=one, changes={"name": "other"})
    assert (changed.array_count, changed.array_indices) == (1, [2])

    changed = task_change(actor=alice, task=changed, changes={"array": {"size": 4}})
    assert (changed.array_count, changed.array_indices) == (4, None)


@pytest.mark.parametrize("size", [0, 10_001, -1])
def test_the_size_of_an_array_is_bounded(size: int) -> None:
    with pytest.raises(BadInput) as caught:
        spec_of({"name": "t", "array": {"size": size}})

    assert caught.value.fields == {"array.size": f"is {size}: it must lie between 1 and 10000"}


def test_a_large_array_is_enqueued_with_one_insert(served: Example, alice: User) -> None:
    small = array_of(alice, served, 1)
    with CaptureQueriesContext(connection) as queries:
        array = array_of(alice, served, 10_000)

    inserts = [one["sql"] for one in queries if one["sql"].startswith('INSERT INTO "tasks_task"')]
    assert len(inserts) == 1
    run_pass()
    assert sum((counts(small) + counts(array)).values()) == 1000
