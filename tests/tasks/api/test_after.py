"""New tasks that start after others: alone, in a bulk, checked, and as drafts."""

from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from apps.tasks.models import Task, TaskDependency
from apps.tasks.services import dependencies
from tests.people import Example
from tests.tasks.api.test_tasks import TASKS, As, post, wanted

pytestmark = pytest.mark.django_db


def ids(client: Any, example: Example, count: int) -> list[str]:
    return [post(client, body=wanted(example)).json()["id"] for _ in range(count)]


def edges() -> list[tuple[str, ...]]:
    rows = TaskDependency.objects.order_by("pk").values_list("task", "after", "when", "outcome")
    return [tuple(map(str, row)) for row in rows]


def test_a_new_task_starts_after_others(api_as: As, alice: User, example: Example) -> None:
    client = api_as(alice)
    first, second = ids(client, example, 2)
    after = [{"task": first}, {"task": second, "when": "any"}]

    made = post(client, body=wanted(example, after=after)).json()
    held = post(client, body=wanted(example, after=after[:1], hold=True)).json()

    assert edges() == [
        (made["id"], first, "ok", "waiting"),
        (made["id"], second, "any", "waiting"),
        (held["id"], first, "ok", "waiting"),
    ]
    assert client.get(f"{TASKS}{made['id']}/explain/").json()["code"] == "dependency"
    assert client.get(f"{TASKS}{held['id']}/explain/").json()["code"] == "on_hold"
    released = post(client, f"{TASKS}{held['id']}/release/")
    assert released.status_code == 200
    assert client.get(f"{TASKS}{held['id']}/explain/").json()["code"] == "dependency"


def test_what_has_ended_as_needed_is_met_at_once(api_as: As, alice: User, example: Example) -> None:
    client = api_as(alice)
    (ended,) = ids(client, example, 1)
    post(client, f"{TASKS}{ended}/abort/")

    met = post(client, body=wanted(example, after=[{"task": ended, "when": "failed"}])).json()
    unmet = post(client, body=wanted(example, after=[{"task": ended}]))

    assert edges() == [(met["id"], ended, "failed", "met")]
    assert Task.objects.get(pk=met["id"]).ineligible_code == ""
    assert unmet.status_code == 400
    assert unmet.json()["fields"] == {"after.0.task": "has ended in another way already"}
    assert Task.objects.count() == 2


def test_bad_entries_are_refused_by_their_place(
    api_as: As, alice: User, charlie: User, example: Example
) -> None:
    client = api_as(alice)
    (first,) = ids(client, example, 1)
    foreign = wanted(example, queue=example.research_queue.name)
    hidden = post(api_as(charlie), body=foreign).json()["id"]
    draft = post(client, body={"name": "d", "command": ["true"]}).json()["id"]

    def problems(*after: object) -> dict[str, str]:
        refused = post(client, body=wanted(example, after=list(after)))
        assert refused.status_code == 400
        found: dict[str, str] = refused.json()["fields"]
        return found

    good = {"task": first}
    unseen = {"after.1.task": "is no task that you see"}
    assert problems(good, {"task": hidden}) == unseen
    assert problems(good, {"task": str(uuid4())}) == unseen
    assert problems(good, {"task": draft}) == {"after.1.task": "is a draft: enqueue it first"}
    assert problems(good, good) == {"after.1.task": "is named twice"}
    assert problems({"task": "x"}) == {"after.0.task": "must be the id of a task"}
    assert problems({"when": "ok"}) == {"after.0.task": "is missing"}
    assert problems(good, {"task": first, "when": "soon"}) == {
        "after.1.when": "must be one of ok, failed, any"
    }
    assert problems({"tusk": first}) == {
        "after.0.tusk": "is not a known field; did you mean 'task'?"
    }
    assert Task.objects.filter(state="queued").count() == 2


def test_tasks_that_wait_for_one_are_bounded_when_they_are_enqueued(
    api_as: As, alice: User, example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependencies, "MOST_DEPENDENTS", 2)
    client = api_as(alice)
    (first,) = ids(client, example, 1)
    body = wanted(example, after=[{"task": first}])

    assert post(client, body=body).status_code == 201
    answers = post(client, f"{TASKS}bulk/", [body] * 3).json()

    assert [one["status"] for one in answers] == [201, 409, 409]
    assert "has 2 tasks that wait for it" in answers[1]["error"]["detail"]
    assert post(client, body=body).status_code == 409
    assert TaskDependency.objects.count() == 2


def test_each_task_of_a_bulk_starts_after_its_own_others(
    api_as: As, alice: User, example: Example
) -> None:
    client = api_as(alice)
    first, second = ids(client, example, 2)
    bodies = [
        wanted(example, after=[{"task": first}]),
        wanted(example, after=[{"task": str(uuid4())}]),
        wanted(example),
        wanted(example, after=[{"task": second, "when": "any"}, {"task": first}]),
        {"name": "d", "command": ["true"], "after": [{"task": first}]},
    ]

    answers = post(client, f"{TASKS}bulk/", bodies).json()

    assert [one["status"] for one in answers] == [201, 400, 201, 201, 400]
    assert answers[1]["error"]["fields"] == {"after.0.task": "is no task that you see"}
    assert list(answers[4]["error"]["fields"]) == ["after"]
    made = [one["task"]["id"] for one in answers if one["task"]]
    assert edges() == [
        (made[0], first, "ok", "waiting"),
        (made[2], second, "any", "waiting"),
        (made[2], first, "ok", "waiting"),
    ]
    codes = [Task.objects.get(pk=pk).ineligible_code for pk in made]
    assert codes == ["dependency", "", "dependency"]


def test_a_bulk_costs_as_many_queries_however_many_tasks_wait_for_others(
    api_as: As, alice: User, example: Example
) -> None:
    client = api_as(alice)
    tasks = ids(client, example, 6)
    counts = []
    for others in (tasks[:2], tasks):
        bodies = [wanted(example, after=[{"task": one}]) for one in others]
        with CaptureQueriesContext(connection) as found:
            post(client, f"{TASKS}bulk/", bodies)
        counts.append(len(found))

    assert counts[0] == counts[1]
    assert TaskDependency.objects.count() == 8


def test_a_check_says_that_it_would_wait_and_stores_nothing(
    api_as: As, alice: User, example: Example
) -> None:
    client = api_as(alice)
    (first,) = ids(client, example, 1)

    found = post(client, f"{TASKS}check/", wanted(example, after=[{"task": first}])).json()
    held = post(client, f"{TASKS}check/", wanted(example, hold=True)).json()
    bad = post(client, f"{TASKS}check/", wanted(example, after=[{"task": str(uuid4())}]))

    assert (found["would_run"], found["reasons"][0]["code"]) == (False, "dependency")
    assert (held["would_run"], held["reasons"][0]["code"]) == (False, "on_hold")
    assert bad.json()["fields"] == {"after.0.task": "is no task that you see"}
    assert not TaskDependency.objects.exists()
    assert Task.objects.count() == 1


def test_a_draft_waits_for_none(api_as: As, alice: User, example: Example) -> None:
    client = api_as(alice)
    (first,) = ids(client, example, 1)
    body, after = {"name": "d", "command": ["true"]}, [{"task": first}]

    refused = post(client, body={**body, "after": after})
    draft = post(client, body=body).json()["id"]
    changed = client.patch(f"{TASKS}{draft}/", {"after": after}, format="json")

    for one in (refused, changed):
        assert one.status_code == 400
        assert one.json()["detail"].startswith("after is for tasks in a queue: name a queue")
    assert client.patch(f"{TASKS}{draft}/", {"after": []}, format="json").status_code == 200


def test_running_again_waits_for_none(api_as: As, alice: User, example: Example) -> None:
    client = api_as(alice)
    (first,) = ids(client, example, 1)
    task = post(client, body=wanted(example, after=[{"task": first}])).json()["id"]
    post(client, f"{TASKS}{task}/abort/")

    again = post(client, f"{TASKS}{task}/run-again/")

    assert again.status_code == 200
    assert Task.objects.get(pk=task).ineligible_code == ""
    assert edges() == []
