"""Would this task run now: the same answer as enqueueing it and passing, with nothing stored."""

from collections.abc import Callable
from typing import Any

import pytest
from guardian.shortcuts import assign_perm
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.policies import policy_change
from apps.configuration.services.pools import policy_pause
from apps.configuration.services.provision import document_provision
from apps.events.models import Event
from apps.policies.document import parse
from apps.policies.models import Queue
from apps.tasks.models import IdempotencyKey, Task, TaskGroup
from tests.allocation.state import enqueue, make_node
from tests.page_words import words_on
from tests.people import EXAMPLE, Example

As = Callable[[User], APIClient]
pytestmark = pytest.mark.django_db


def asked(api_as: As, user: User, queue: Queue, **changes: object) -> Any:
    body = {"name": "maybe", "queue": queue.name, "command": ["true"], **changes}
    return api_as(user).post("/api/v1/tasks/check/", body, format="json")


def checked(api_as: As, user: User, queue: Queue, **changes: object) -> dict[str, Any]:
    answer = asked(api_as, user, queue, **changes)
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def test_a_task_that_would_run_says_where(
    api_as: As, alice: User, root: User, example: Example
) -> None:
    make_node(example.bare_metal, name="b1")

    own = checked(api_as, alice, example.dev_queue)
    seen = checked(api_as, root, example.dev_queue)

    assert own["would_run"] is True
    assert own["sentence"] == "It would start now in your first pool (reserved)."
    assert (own["pool"], own["nodes"], own["tier"]) == ("your first pool", [], "reserved")
    assert (own["position"], own["ahead"], own["reasons"], own["stops"]) == (1, 0, [], 0)
    assert (seen["pool"], seen["nodes"]) == (example.bare_metal.name, ["b1"])


def test_nothing_is_stored(
    api_as: As,
    alice: User,
    example: Example,
    django_capture_on_commit_callbacks: Any,
) -> None:
    make_node(example.bare_metal, name="b1")
    client = api_as(alice)
    before = [model._default_manager.count() for model in (Task, TaskGroup, Event, IdempotencyKey)]

    with django_capture_on_commit_callbacks() as callbacks:
        checked(lambda _user: client, alice, example.dev_queue, priority=0)

    assert [m._default_manager.count() for m in (Task, TaskGroup, Event, IdempotencyKey)] == before
    assert callbacks == []


def test_a_task_that_would_wait_says_why_and_what_is_ahead(
    api_as: As, alice: User, example: Example
) -> None:
    make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue, 5)
    run_pass()
    run_pass()

    found = checked(api_as, alice, example.dev_queue)

    assert found["would_run"] is False
    assert (found["code"], found["position"], found["ahead"]) == ("capacity", 4, 3)
    assert found["sentence"] == found["reasons"][0]["sentence"]
    assert found["reasons"][1]["details"][0]["position"] == 4
    assert found["help"]


@pytest.mark.parametrize("count", range(1, 6))
def test_it_says_what_then_happens(
    api_as: As, alice: User, bob: User, example: Example, count: int
) -> None:
    make_node(example.bare_metal, name="b1")
    make_node(example.h100, name="h1", gpus=4)
    enqueue(bob, example.dev_queue, count - 1)

    found = checked(api_as, alice, example.dev_queue)
    (task,) = enqueue(alice, example.dev_queue)
    run_pass()
    run_pass()

    task.refresh_from_db()
    assert found["would_run"] == (task.state == "allocated")
    assert found["would_run"] == (count <= 3)


def test_the_tasks_behind_the_heads_come_first_too(
    api_as: As, alice: User, example: Example
) -> None:
    """The pass reads only the first of many equal tasks; the rest of them is not overtaken."""
    make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue, 4)

    found = checked(api_as, alice, example.dev_queue)

    assert (found["would_run"], found["ahead"]) == (False, 4)


def test_higher_priority_stands_before_equal_work(
    api_as: As, alice: User, example: Example
) -> None:
    Queue.objects.filter(pk=example.dev_queue.pk).update(max_priority=5)
    make_node(example.bare_metal, name="b1", gpus=4)
    enqueue(alice, example.dev_queue, 1)

    assert checked(api_as, alice, example.dev_queue)["would_run"] is False
    found = checked(api_as, alice, example.dev_queue, priority=5)

    assert (found["would_run"], found["position"]) == (True, 1)


def test_names_of_other_teams_never_show_up(
    api_as: As, alice: User, charlie: User, root: User, example: Example
) -> None:
    make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue, 2)
    run_pass()
    enqueue(charlie, example.research_queue, 1)
    run_pass()

    payloads = {who: str(checked(api_as, who, example.dev_queue)) for who in (alice, root)}

    assert words_on(payloads[alice], "Research", "research-4xgpu", "Bare Metal", "H100") == []
    assert "Bare Metal" in payloads[root]
    assert "Research" in payloads[root]


def test_whoever_would_stop_for_it_is_counted_and_named_only_to_those_who_see_them(
    api_as: As, alice: User, charlie: User, root: User, example: Example
) -> None:
    make_node(example.bare_metal, name="b1")
    make_node(example.h100, name="h1")
    enqueue(charlie, example.research_queue, 4)
    run_pass()

    own, seen = (checked(api_as, who, example.dev_queue) for who in (alice, root))

    assert (own["would_run"], own["tier"]) == (True, "reserved")
    assert (own["stops"], own["stopped"]) == (1, [])
    assert "once 1 task there has stopped" in own["sentence"]
    assert "research" not in str(own).lower()
    assert seen["stops"] == len(seen["stopped"]) == 1
    assert seen["stopped"][0].startswith(example.research_queue.name)
    assert not Task.objects.filter(state="stopping").exists()


def test_a_limit_is_the_reason_and_named(
    api_as: As, alice: User, root: User, example: Example
) -> None:
    make_node(example.bare_metal, name="b1")
    policy_change(actor=root, policy=example.dev, changes={"reserved": 4, "limit": 4})
    enqueue(alice, example.dev_queue, 1)
    run_pass()

    found = checked(api_as, alice, example.dev_queue)

    assert found["code"] == "limit"
    assert "Dev uses 4 GPUs of its limit of 4 GPUs" in found["sentence"]


def test_a_paused_policy_takes_nothing(
    api_as: As, alice: User, root: User, example: Example
) -> None:
    make_node(example.bare_metal, name="b1")
    policy_pause(actor=root, policy=example.dev, reason="Audit.")

    assert checked(api_as, alice, example.dev_queue)["code"] == "paused"


@pytest.mark.parametrize(
    ("changes", "status", "field"),
    [
        pytest.param({"comand": ["x"]}, 400, "comand", id="an unknown field"),
        pytest.param({"queue": "nowhere"}, 404, "queue", id="no such queue"),
        pytest.param({"queue": None}, 400, "queue", id="no queue at all"),
        pytest.param({"priority": 7}, 400, "priority", id="above the queue's priority"),
        pytest.param({"replicas": 99}, 422, "request.gpu", id="could never run"),
        pytest.param({"request": 1}, 400, "request", id="a request of its own"),
        pytest.param({"command": []}, 400, "command", id="nothing to run"),
    ],
)
def test_bad_input_is_refused_as_enqueueing_refuses_it(
    api_as: As,
    alice: User,
    example: Example,
    changes: dict[str, object],
    status: int,
    field: str,
) -> None:
    body = {"name": "maybe", "queue": example.dev_queue.name, "command": ["true"], **changes}

    check = api_as(alice).post("/api/v1/tasks/check/", body, format="json")

    assert check.status_code == status, check.content
    assert field in check.json()["fields"]
    if body["queue"] is not None:
        enqueued = api_as(alice).post("/api/v1/tasks/", body, format="json")
        same = ("code", "detail", "fields")
        assert [enqueued.json()[name] for name in same] == [check.json()[name] for name in same]


def test_a_queue_that_lets_no_more_wait_refuses(api_as: As, alice: User, example: Example) -> None:
    Queue.objects.filter(pk=example.dev_queue.pk).update(max_waiting=1)
    enqueue(alice, example.dev_queue, 1)

    assert asked(api_as, alice, example.dev_queue).status_code == 409


def test_who_may_not_enqueue_may_not_check(
    api_as: As, bob: User, charlie: User, example: Example
) -> None:
    make_node(example.bare_metal, name="b1")

    assert checked(api_as, bob, example.dev_queue)["would_run"] is True
    assert asked(api_as, charlie, example.dev_queue).status_code == 404
    assign_perm("view_queue", charlie, example.dev_queue)
    assert asked(api_as, charlie, example.dev_queue).status_code == 403


def test_a_request_of_its_own_counts(api_as: As, alice: User, root: User, example: Example) -> None:
    document = {**EXAMPLE, "profiles": [dict(one) for one in EXAMPLE["profiles"]]}
    document["profiles"][0] |= {"is_dynamic": True, "request_max": 8}
    draft_write(document=parse(document), actor=root)
    document_provision(actor=root)
    make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue, 1)

    assert checked(api_as, alice, example.dev_queue, request=4)["would_run"] is True
    found = checked(api_as, alice, example.dev_queue, request=5)

    assert (found["would_run"], found["code"]) == (False, "capacity")
    assert found["reasons"][0]["details"][0]["needed"] == "5"
