"""One action on many tasks: each is judged by itself."""

import uuid
from itertools import count
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from guardian.shortcuts import assign_perm, remove_perm

from apps.access.permissions import rows_with_permission
from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.core.errors import BadInput
from apps.events.models import Event
from apps.tasks.models import Task
from apps.tasks.services import bulk_actions
from apps.tasks.services.bulk_actions import MOST_TASKS, BulkAction, tasks_act
from apps.tasks.services.holds import task_hold
from tests.allocation.state import enqueue, make_node, states
from tests.people import Example
from tests.tasks.services.array_steps import array_of, counts

pytestmark = pytest.mark.django_db


def test_each_task_gets_its_own_result_and_the_others_are_changed(
    example: Example, alice: User, charlie: User
) -> None:
    make_node(example.bare_metal, name="b1")
    tasks = enqueue(alice, example.dev_queue, 4)
    (foreign,) = enqueue(charlie, example.research_queue)
    run_pass()
    nobody = uuid.uuid4()
    ids = [task.pk for task in tasks]

    results = tasks_act(
        actor=alice, ids=[*ids, foreign.pk, nobody, ids[0]], action=BulkAction("dequeue")
    )

    assert [one.id for one in results] == [*ids, foreign.pk, nobody]
    codes = [one.error.code if one.error else "" for one in results]
    assert codes == ["conflict", "conflict", "", "", "not_found", "not_found"]
    assert states([*tasks, foreign]) == ["allocated", "allocated", "draft", "draft", "queued"]
    assert Event.objects.filter(kind="task.draft", actor=alice).count() == 2


def test_a_colleague_sees_the_tasks_and_may_not_act_on_them(
    example: Example, alice: User, bob: User, root: User
) -> None:
    tasks = enqueue(alice, example.dev_queue, 2)
    ids = [task.pk for task in tasks]

    refused = tasks_act(actor=bob, ids=ids, action=BulkAction("abort"))

    assert [one.error.code for one in refused if one.error] == ["forbidden", "forbidden"]
    assert states(tasks) == ["queued", "queued"]
    done = tasks_act(actor=root, ids=ids, action=BulkAction("hold"))
    assert [one.error for one in done] == [None, None]
    refused = tasks_act(actor=alice, ids=ids, action=BulkAction("release"))
    assert [one.error.code for one in refused if one.error] == ["forbidden", "forbidden"]


def test_every_action_does_what_the_single_one_does(
    example: Example, alice: User, charlie: User
) -> None:
    (task,) = enqueue(alice, example.dev_queue)

    def do(action: BulkAction) -> Task:
        (result,) = tasks_act(actor=alice, ids=[task.pk], action=action)
        assert result.error is None, result.error
        return Task.objects.get(pk=task.pk)

    assert do(BulkAction("priority", priority=-3)).priority == -3
    assert do(BulkAction("hold")).is_held
    assert not do(BulkAction("release")).is_held
    assert do(BulkAction("abort")).state == "aborted"
    assert do(BulkAction("run-again")).state == "queued"
    assert do(BulkAction("dequeue")).state == "draft"
    (refused,) = tasks_act(
        actor=alice, ids=[task.pk], action=BulkAction("change-queue", queue="none")
    )
    assert refused.error is not None
    assert refused.error.code in {"not_found", "conflict"}


@pytest.mark.parametrize(
    ("verb", "values", "field"),
    [
        ("change-queue", {}, "queue"),
        ("abort", {"queue": "x"}, "queue"),
        ("priority", {}, "priority"),
        ("hold", {"priority": 1}, "priority"),
    ],
)
def test_an_action_names_what_it_lacks_or_does_not_take(
    verb: bulk_actions.BulkVerb, values: dict[str, int | str], field: str
) -> None:
    with pytest.raises(BadInput) as caught:
        BulkAction(verb, **values)  # type: ignore[arg-type]  # one of the bad ones

    assert list(caught.value.fields) == [field]


def test_one_request_acts_on_a_thousand_tasks_at_most(alice: User) -> None:
    action = BulkAction("abort")
    ids = [uuid.uuid4() for _ in range(MOST_TASKS + 1)]

    assert len(tasks_act(actor=alice, ids=ids[:-1], action=action)) == MOST_TASKS
    with pytest.raises(BadInput, match="at most 1000"):
        tasks_act(actor=alice, ids=ids, action=action)


def test_tasks_that_are_not_reached_in_time_are_not_changed(
    example: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = enqueue(alice, example.dev_queue, 3)
    seconds = count()
    monkeypatch.setattr(bulk_actions, "monotonic", lambda: float(next(seconds)))

    results = tasks_act(
        actor=alice, ids=[task.pk for task in tasks], action=BulkAction("dequeue"), run_s=2.5
    )

    # Asked once when it begins, and once before each task.
    assert [one.error.status if one.error else 200 for one in results] == [200, 200, 503]
    assert states(tasks) == ["draft", "draft", "queued"]


def test_a_deadlock_costs_one_task_its_turn_and_no_other_its_result(
    example: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = enqueue(alice, example.dev_queue, 3)

    def hold(*, actor: User, task: Task) -> Task:
        if task == tasks[1]:
            raise OperationalError("deadlock detected")
        return task_hold(actor=actor, task=task)

    monkeypatch.setitem(bulk_actions._PLAIN, "hold", hold)

    results = tasks_act(actor=alice, ids=[one.pk for one in tasks], action=BulkAction("hold"))

    assert [one.error.status if one.error else 200 for one in results] == [200, 503, 200]


def test_a_task_that_is_removed_meanwhile_is_one_result(
    example: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = enqueue(alice, example.dev_queue, 3)

    def hold(*, actor: User, task: Task) -> Task:
        if task == tasks[1]:
            Task.objects.filter(pk=task.pk).delete()
        return task_hold(actor=actor, task=task)

    monkeypatch.setitem(bulk_actions._PLAIN, "hold", hold)

    results = tasks_act(actor=alice, ids=[one.pk for one in tasks], action=BulkAction("hold"))

    assert [one.error.status if one.error else 200 for one in results] == [200, 404, 200]
    assert results[1].task is None


def test_tasks_that_do_not_run_are_aborted_in_few_statements(
    example: Example, alice: User, root: User
) -> None:
    def statements(count: int) -> int:
        tasks = enqueue(alice, example.dev_queue, count)
        with CaptureQueriesContext(connection) as queries:
            results = tasks_act(
                actor=alice, ids=[one.pk for one in tasks], action=BulkAction("abort")
            )
        assert [one.error for one in results] == [None] * count
        assert {one.task.state for one in results if one.task} == {"aborted"}
        assert set(states(tasks)) == {"aborted"}
        return len(queries)

    assert statements(2) == statements(20)
    events = Event.objects.filter(kind="task.aborted")
    assert events.count() == 22
    assert events[0].actor_id == alice.pk


def test_rights_are_asked_again_under_the_lock(
    example: Example, alice: User, charlie: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    for permission in ("view_queue", "manage_queue"):
        assign_perm(permission, charlie, example.dev_queue)
    tasks = enqueue(alice, example.dev_queue, 2)

    def taken_meanwhile(*args: Any) -> Any:
        remove_perm("manage_queue", charlie, example.dev_queue)
        return rows_with_permission(*args)

    monkeypatch.setattr("apps.tasks.services.stop.rows_with_permission", taken_meanwhile)

    results = tasks_act(actor=charlie, ids=[one.pk for one in tasks], action=BulkAction("abort"))

    assert [one.error.code for one in results if one.error] == ["forbidden", "forbidden"]
    assert states(tasks) == ["queued", "queued"]


def test_running_tasks_and_arrays_are_aborted_one_by_one(served: Example, alice: User) -> None:
    running, waiting = enqueue(alice, served.dev_queue, 2)
    run_pass()
    array = array_of(alice, served, 5)
    run_pass()

    results = tasks_act(
        actor=alice,
        ids=[running.pk, waiting.pk, array.pk],
        action=BulkAction("abort"),
    )

    assert [one.error for one in results] == [None] * 3
    assert states([running, waiting, array]) == ["stopping", "stopping", "aborted"]
    assert counts(array) == {"aborted": 5}
