"""Arrays that run again: no index twice at once, and none that may have completed."""

import pytest

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.core.errors import Conflict
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.services.enqueue.submission import task_enqueue, task_run_again
from apps.tasks.services.retention import ended_tasks_remove
from apps.tasks.services.stop import task_abort, task_dequeue
from tests.people import Example
from tests.tasks.services.array_steps import array_of, finish, stop_all, stored

pytestmark = pytest.mark.django_db
AGAIN = "runs again already"


@pytest.fixture
def failed(served: Example, alice: User) -> Task:
    """An array of which both elements failed."""
    array = array_of(alice, served, 2)
    run_pass()
    finish(array, 1, 1)
    run_pass()
    array.refresh_from_db()
    return array


def test_an_element_does_not_run_again_next_to_its_array(failed: Task, alice: User) -> None:
    element = failed.elements.get(array_index=1)
    again = task_run_again(actor=alice, task=failed)

    with pytest.raises(Conflict, match=AGAIN):
        task_run_again(actor=alice, task=element)
    run_pass()
    with pytest.raises(Conflict, match=AGAIN):
        task_run_again(actor=alice, task=element)

    finish(again, 1, 0)
    run_pass()
    again.refresh_from_db()
    third = task_run_again(actor=alice, task=again)
    # Of the first array, element 0 would run next to the one of the third.
    with pytest.raises(Conflict, match=AGAIN):
        task_run_again(actor=alice, task=failed.elements.get(array_index=0))
    assert third.array_indices == [0]
    assert task_run_again(actor=alice, task=element).array_indices == [1]


def test_an_array_does_not_run_again_next_to_one_of_its_elements(failed: Task, alice: User) -> None:
    task_run_again(actor=alice, task=failed.elements.get(array_index=1))

    with pytest.raises(Conflict, match=AGAIN):
        task_run_again(actor=alice, task=failed)
    task_run_again(actor=alice, task=failed.elements.get(array_index=0))


def test_an_array_that_runs_again_is_not_enqueued_next_to_another(
    failed: Task, served: Example, alice: User
) -> None:
    first = task_dequeue(actor=alice, task=task_run_again(actor=alice, task=failed))
    second = task_run_again(actor=alice, task=failed)

    with pytest.raises(Conflict, match=AGAIN):
        task_enqueue(actor=alice, task=first, queue=served.dev_queue.name)

    task_abort(actor=alice, task=second)
    assert task_enqueue(actor=alice, task=first, queue=served.dev_queue.name).state == "queued"


def test_elements_that_were_removed_do_not_run_again(served: Example, alice: User) -> None:
    array = array_of(alice, served, 3, limit=2)
    run_pass()
    finish(array, 0, 1)
    task_abort(actor=alice, task=array)
    stop_all(array)
    array.refresh_from_db()
    Attempt.objects.update(is_booked=True)
    Member.objects.update(is_acknowledged=True)
    assert ended_tasks_remove([array.elements.get(array_index=0).pk]) == 1

    again = task_run_again(actor=alice, task=array)
    run_pass()

    # The second one failed, and the third was never stored.
    assert stored(again) == [1, 2]
