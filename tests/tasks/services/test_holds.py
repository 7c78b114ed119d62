"""Holding waiting tasks, and releasing them."""

import pytest

from apps.accounts.models import User
from apps.allocation.explanation import expected_start, explain_task
from apps.allocation.loader import load
from apps.allocation.loader.queued_counts import queued_counts
from apps.allocation.services import run_pass
from apps.core.errors import Conflict, NotAllowed
from apps.events.models import Event
from apps.tasks.models import Task
from apps.tasks.selectors.queue_order import queue_position
from apps.tasks.services.enqueue.bulk import tasks_enqueue_many
from apps.tasks.services.enqueue.submission import (
    task_change,
    task_create,
    task_enqueue,
    task_run_again,
)
from apps.tasks.services.holds import may_release, task_hold, task_release
from apps.tasks.services.queue_order import task_reorder, task_set_priority
from apps.tasks.services.stop import task_abort, task_dequeue
from apps.tasks.task_spec import spec_of
from apps.usage.selectors.waiting_tasks import waiting_by_queue
from tests.allocation.state import enqueue, make_node, states
from tests.people import Example
from tests.tasks.services.array_steps import array_of, counts

pytestmark = pytest.mark.django_db


@pytest.fixture
def served(example: Example) -> Example:
    make_node(example.bare_metal, name="b1")
    return example


def test_no_pass_starts_a_held_task_and_the_next_one_starts_it_once_it_is_released(
    served: Example, alice: User
) -> None:
    tasks = enqueue(alice, served.dev_queue, 3)
    submitted_at = tasks[0].submitted_at
    task_hold(actor=alice, task=tasks[0])

    run_pass()

    # Two of 4 GPUs fit: the held one does not take the place of one that can start.
    assert states(tasks) == ["queued", "allocated", "allocated"]
    for task in tasks[1:]:
        task_abort(actor=alice, task=Task.objects.get(pk=task.pk))
    task_release(actor=alice, task=tasks[0])
    tasks[0].refresh_from_db()
    assert (tasks[0].submitted_at, tasks[0].ineligible_code) == (submitted_at, "")


def test_a_released_task_is_placed(served: Example, alice: User) -> None:
    (task,) = enqueue(alice, served.dev_queue)
    task_hold(actor=alice, task=task)
    run_pass()
    assert states([task]) == ["queued"]

    task_release(actor=alice, task=task)
    run_pass()

    assert states([task]) == ["allocated"]


def test_held_tasks_take_no_place_among_the_heads_of_their_group(
    served: Example, alice: User
) -> None:
    tasks = enqueue(alice, served.dev_queue, 4)
    for task in tasks[:2]:
        task_hold(actor=alice, task=task)

    (group,) = load(now_us=0).snapshot.queued_groups

    assert [head.task for head in group.heads] == [str(task.pk) for task in tasks[2:]]
    assert list(queued_counts().values()) == [2]
    for task in tasks[2:]:
        task_hold(actor=alice, task=task)
    assert load(now_us=0).snapshot.queued_groups == ()


def test_a_task_that_is_held_while_a_pass_decides_is_not_admitted(
    served: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    (task,) = enqueue(alice, served.dev_queue)

    def load_and_hold(*, now_us: int) -> object:
        loaded = load(now_us=now_us)
        task_hold(actor=alice, task=task)
        return loaded

    monkeypatch.setattr("apps.allocation.services.load", load_and_hold)
    outcome = run_pass()

    assert (outcome.placed, outcome.skipped, states([task])) == (0, 1, ["queued"])


def test_its_page_and_its_queue_say_that_it_is_held_and_by_whom(
    served: Example, alice: User, root: User
) -> None:
    first, second = enqueue(alice, served.dev_queue, 2)
    task_hold(actor=alice, task=first)
    run_pass()

    found = explain_task(alice, first)

    assert (found.code, found.position) == ("on_hold", 1)
    assert found.reasons[0].sentence == "Its owner put it on hold."
    assert found.at is not None
    assert [one.reason.code for one in found.history] == ["on_hold"]
    start = expected_start(first)
    assert start is not None
    assert (start.basis, start.earliest) == ("not_in_sight", None)
    assert waiting_by_queue()[served.dev_queue.pk].codes == (("on_hold", 1),)

    task_hold(actor=root, task=first)
    found = explain_task(alice, first)
    assert (found.code, [one.reason.code for one in found.history]) == (
        "admin_hold",
        ["admin_hold", "on_hold"],
    )
    del second


def test_positions_do_not_count_held_tasks(example: Example, alice: User) -> None:
    tasks = enqueue(alice, example.dev_queue, 3)
    task_hold(actor=alice, task=tasks[1])

    assert [queue_position(task) for task in tasks] == [1, 2, 2]
    assert explain_task(alice, tasks[2]).position == 2


def test_what_a_manager_holds_its_owner_cannot_release(
    example: Example, alice: User, bob: User, charlie: User, root: User
) -> None:
    (task,) = enqueue(alice, example.dev_queue)
    for person in (bob, charlie):
        with pytest.raises(NotAllowed):
            task_hold(actor=person, task=task)
    task_hold(actor=root, task=task)

    assert not may_release(alice, task)
    with pytest.raises(NotAllowed, match="only such a user can release it"):
        task_release(actor=alice, task=task)
    # Neither does the owner's own hold make it the owner's.
    task_hold(actor=alice, task=task)
    task.refresh_from_db()
    assert task.ineligible_code == "admin_hold"

    assert may_release(root, task)
    assert task_release(actor=root, task=task).ineligible_code == ""
    events = Event.objects.filter(kind__in=["task.hold", "task.release"]).order_by("id")
    assert [(event.kind, event.actor_id) for event in events] == [
        ("task.hold", root.pk),
        ("task.release", root.pk),
    ]


def test_a_manager_releases_what_the_owner_held(example: Example, alice: User, root: User) -> None:
    (task,) = enqueue(alice, example.dev_queue)
    task_hold(actor=alice, task=task)

    assert task_release(actor=root, task=task).ineligible_code == ""


def test_repeating_changes_nothing(example: Example, alice: User) -> None:
    (task,) = enqueue(alice, example.dev_queue)
    task_release(actor=alice, task=task)
    task_hold(actor=alice, task=task)
    held = task_hold(actor=alice, task=task)

    assert held.ineligible_code == "on_hold"
    assert Event.objects.filter(kind__in=["task.hold", "task.release"]).count() == 1


def test_only_waiting_tasks_are_held_and_released(served: Example, alice: User) -> None:
    (task,) = enqueue(alice, served.dev_queue)
    run_pass()

    for act, words in ((task_hold, "put on hold"), (task_release, "released")):
        with pytest.raises(Conflict, match=f"Only waiting tasks can be {words}"):
            act(actor=alice, task=task)


def test_a_task_can_be_enqueued_on_hold_alone_in_bulk_and_as_a_draft(
    served: Example, alice: User
) -> None:
    values = {"name": "t", "command": ["true"], "hold": True}
    queued = {**values, "queue": served.dev_queue.name}
    (alone,) = enqueue(alice, served.dev_queue, hold=True)
    (many,) = tasks_enqueue_many(actor=alice, items=[spec_of(queued)])
    draft = task_create(actor=alice, spec=spec_of(values))
    task_enqueue(actor=alice, task=draft, queue=served.dev_queue.name)
    other = task_create(actor=alice, spec=spec_of(values))
    other = task_change(actor=alice, task=other, changes={"name": "other"})
    assert other.is_held
    other = task_change(actor=alice, task=other, changes={"hold": False})
    task_enqueue(actor=alice, task=other, queue=served.dev_queue.name)

    run_pass()

    assert states([alone, many, draft, other]) == ["queued", "queued", "queued", "allocated"]
    found = explain_task(alice, alone)
    assert (found.code, found.at) == ("on_hold", alone.waits_since)


def test_a_held_task_keeps_its_hold_where_it_is_moved_and_loses_it_out_of_the_queue(
    example: Example, alice: User, root: User
) -> None:
    first, second = enqueue(alice, example.dev_queue, 2)
    task_hold(actor=alice, task=second)
    task_reorder(actor=root, task=second, move="top")
    task_set_priority(actor=alice, task=second, priority=-1)
    second.refresh_from_db()
    assert second.ineligible_code == "on_hold"

    assert task_dequeue(actor=alice, task=second).ineligible_code == ""
    task_hold(actor=alice, task=first)
    ended = task_abort(actor=alice, task=first)
    assert ended.ineligible_code == ""
    assert task_run_again(actor=alice, task=ended).ineligible_code == ""


def test_what_a_manager_holds_its_owner_cannot_dequeue(
    example: Example, alice: User, root: User
) -> None:
    (task,) = enqueue(alice, example.dev_queue)
    task_hold(actor=root, task=task)

    with pytest.raises(NotAllowed, match="it stays there, or is aborted"):
        task_dequeue(actor=alice, task=task)
    assert states([task]) == ["queued"]

    assert task_dequeue(actor=root, task=task).state == "draft"


def test_no_element_evades_the_hold_of_its_array_by_a_manager(
    example: Example, alice: User, root: User
) -> None:
    array = array_of(alice, example, 3)
    run_pass()
    element = array.elements.get(array_index=1)
    task_hold(actor=alice, task=element)

    task_hold(actor=root, task=array)

    element.refresh_from_db()
    assert not may_release(alice, element)
    with pytest.raises(NotAllowed, match="only such a user can release it"):
        task_release(actor=alice, task=element)
    assert task_release(actor=root, task=element).ineligible_code == ""


def test_an_array_is_not_dequeued_while_a_manager_holds_an_element(
    example: Example, alice: User, root: User
) -> None:
    array = array_of(alice, example, 3)
    run_pass()
    task_hold(actor=root, task=array.elements.get(array_index=1))

    with pytest.raises(NotAllowed, match="put this task on hold"):
        task_dequeue(actor=alice, task=array)

    assert counts(array) == {"queued": 3}
    assert task_dequeue(actor=root, task=array).state == "draft"
