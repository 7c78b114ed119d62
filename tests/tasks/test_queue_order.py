"""Moves of tasks inside their queue and to another queue."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.configuration.services.queues import profile_connect, queue_change
from apps.core.errors import BadInput, Conflict, NotAllowed, NotFound, Stale
from apps.events.models import Event
from apps.policies.models import Profile, Queue
from apps.tasks.models import Task
from apps.tasks.selectors.queue_order import queue_position, tasks_in_order
from apps.tasks.services.enqueue.submission import task_enqueue, task_submit
from apps.tasks.services.queue_order import OrderMove, task_change_queue, task_reorder
from apps.tasks.services.stop import task_dequeue
from apps.tasks.task_spec import TaskSpec
from tests.people import Example

pytestmark = pytest.mark.django_db

Line = Callable[[], list[str]]


@pytest.fixture
def tasks(example: Example, alice: User) -> dict[str, Task]:
    """Four equal tasks of Alice's, `a` to `d`, in Dev's queue."""
    return {name: submitted(example.dev_queue, alice, name) for name in "abcd"}


@pytest.fixture
def line(example: Example) -> Line:
    return lambda: [task.name for task in tasks_in_order(example.dev_queue.pk)]


def submitted(queue: Queue, owner: User, name: str, **changes: object) -> Task:
    values = {"queue": queue.name, "command": ["true"]}
    return task_submit(actor=owner, spec=TaskSpec(name=name, **values | changes))  # type: ignore[arg-type]  # checked by the struct


@pytest.mark.parametrize(
    ("move", "who", "want"),
    [
        pytest.param("top", "c", "cabd", id="to the top"),
        pytest.param("bottom", "b", "acdb", id="to the end"),
        pytest.param("up", "c", "acbd", id="one up"),
        pytest.param("down", "b", "acbd", id="one down"),
        pytest.param("up", "a", "abcd", id="the first stays"),
        pytest.param("down", "d", "abcd", id="the last stays"),
        pytest.param("before b", "d", "adbc", id="before another"),
        pytest.param("after c", "a", "bcad", id="after another"),
        pytest.param("before c", "c", "abcd", id="before itself"),
    ],
)
def test_a_task_gets_another_place(
    tasks: dict[str, Task], line: Line, root: User, move: str, who: str, want: str
) -> None:
    word, _, other = move.partition(" ")
    named: OrderMove = word  # type: ignore[assignment]  # of the table above

    task_reorder(actor=root, task=tasks[who], move=named, other=tasks[other].pk if other else None)

    assert line() == list(want)
    moved = Task.objects.get(pk=tasks[who].pk)
    assert moved.waits_since == tasks[who].submitted_at
    assert queue_position(moved) == want.index(who) + 1


def test_a_task_can_be_placed_between_tasks_of_the_same_moment(
    tasks: dict[str, Task], line: Line, root: User
) -> None:
    at = timezone.now() - timedelta(hours=1)
    Task.objects.update(submitted_at=at)
    ordered = line()

    for _ in range(3):
        last = Task.objects.get(name=line()[-1])
        second = Task.objects.get(name=line()[1])
        task_reorder(actor=root, task=last, move="before", other=second.pk)

    assert line() == [ordered[0], ordered[1], ordered[2], ordered[3]]
    assert {task.waits_since for task in Task.objects.all()} == {at}


def test_a_higher_priority_comes_first_whoever_is_moved(
    example: Example, tasks: dict[str, Task], line: Line, alice: User, root: User
) -> None:
    queue_change(actor=root, queue=example.dev_queue, changes={"max_priority": 5})
    urgent = submitted(example.dev_queue, alice, "urgent", priority=5)

    task_reorder(actor=root, task=tasks["d"], move="top")

    assert line() == ["urgent", "d", "a", "b", "c"]
    with pytest.raises(Conflict, match="urgent has priority 5 and d 0"):
        task_reorder(actor=root, task=tasks["d"], move="before", other=urgent.pk)


def test_what_cannot_be_preempted_comes_first_at_equal_priority(
    example: Example, tasks: dict[str, Task], line: Line, alice: User, root: User
) -> None:
    firm = submitted(example.dev_queue, alice, "firm", is_preemptible=False)

    assert line() == ["firm", "a", "b", "c", "d"]
    assert queue_position(firm) == 1
    assert queue_position(tasks["a"]) == 2
    with pytest.raises(Conflict, match="cannot be preempted"):
        task_reorder(actor=root, task=tasks["a"], move="before", other=firm.pk)


def test_only_who_manages_the_queue_sets_its_order(
    tasks: dict[str, Task], line: Line, alice: User, bob: User, charlie: User
) -> None:
    for person in (alice, bob, charlie):
        with pytest.raises(NotAllowed):
            task_reorder(actor=person, task=tasks["d"], move="top")

    assert line() == list("abcd")


def test_who_does_not_wait_there_any_more_is_not_moved_and_no_task_is_moved_next_to_it(
    tasks: dict[str, Task], line: Line, alice: User, root: User
) -> None:
    task_dequeue(actor=alice, task=Task.objects.get(pk=tasks["b"].pk))

    with pytest.raises(Conflict, match="does not wait"):
        task_reorder(actor=root, task=tasks["b"], move="top")
    with pytest.raises(NotFound):
        task_reorder(actor=root, task=tasks["a"], move="after", other=tasks["b"].pk)
    with pytest.raises(BadInput):
        task_reorder(actor=root, task=tasks["a"], move="after")


def test_a_place_is_lost_with_the_queue(
    example: Example, tasks: dict[str, Task], line: Line, alice: User, root: User
) -> None:
    task = task_reorder(actor=root, task=tasks["d"], move="top")

    task_dequeue(actor=alice, task=task)
    task.refresh_from_db()
    task_enqueue(actor=alice, task=task, queue=example.dev_queue.name)

    task.refresh_from_db()
    assert line() == list("abcd")
    assert task.waiting_since is None


def test_a_task_moves_to_another_queue_and_its_wait_goes_on(
    example: Example, tasks: dict[str, Task], line: Line, alice: User, root: User
) -> None:
    smaller = Profile.objects.get(name="2xGPU")
    other = profile_connect(actor=root, policy=example.dev, profile=smaller)
    submitted(other, alice, "there")
    since = tasks["a"].submitted_at
    before = Task.objects.get(pk=tasks["a"].pk)

    moved = task_change_queue(actor=alice, task=tasks["a"], queue=other.name)

    assert line() == list("bcd")
    assert [task.name for task in tasks_in_order(other.pk)] == ["there", "a"]
    assert moved.waits_since == since
    assert moved.task_group is not None
    assert moved.task_group.queue_id == other.pk
    event = Event.objects.filter(object_id=str(moved.pk)).latest("pk")
    assert (event.kind, event.actor, event.queue_id) == ("task.moved", alice, other.pk)
    assert (event.data["queue_before"], event.data["queue"]) == (example.dev_queue.pk, other.pk)
    with pytest.raises(Conflict, match="already"):
        task_change_queue(actor=alice, task=moved, queue=other.name)
    with pytest.raises(Stale, match=f"was moved to {other.name} meanwhile"):
        task_change_queue(actor=alice, task=before, queue=other.name)
    # What the caller checked was the permission on the queue of `before`.
    with pytest.raises(Stale, match=f"was moved to {other.name} meanwhile"):
        task_change_queue(actor=alice, task=before, queue=example.dev_queue.name, seen_in=other.pk)


def test_a_move_that_is_too_late_names_the_queue_only_to_users_who_see_it(
    example: Example, tasks: dict[str, Task], alice: User, root: User
) -> None:
    smaller = Profile.objects.get(name="2xGPU")
    other = profile_connect(actor=root, policy=example.dev, profile=smaller)
    elsewhere = example.research_queue
    Task.objects.filter(pk=tasks["a"].pk).update(queue=elsewhere)

    for actor, name in ((alice, "another queue"), (root, elsewhere.name)):
        with pytest.raises(Stale, match=f"^a was moved to {name} meanwhile and stays there"):
            task_change_queue(actor=actor, task=tasks["a"], queue=other.name)


def test_a_task_moves_only_where_its_mover_and_its_owner_may_enqueue(
    example: Example, tasks: dict[str, Task], line: Line, alice: User, bob: User, root: User
) -> None:
    with pytest.raises(NotFound):
        task_change_queue(actor=alice, task=tasks["a"], queue=example.research_queue.name)
    with pytest.raises(NotAllowed, match="not open to alice"):
        task_change_queue(actor=root, task=tasks["a"], queue=example.research_queue.name)
    with pytest.raises(NotAllowed, match="has another owner"):
        task_change_queue(actor=bob, task=tasks["a"], queue=example.dev_queue.name)

    assert line() == list("abcd")
