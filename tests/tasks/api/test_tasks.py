"""Tasks through REST, as a client."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.events.models import Event
from apps.policies.models import PolicyGroupPermission, Queue
from apps.tasks.models import Task, TaskGroup
from tests.people import Example

As = Callable[[User], APIClient]
pytestmark = pytest.mark.django_db

TASKS = "/api/v1/tasks/"


def post(client: APIClient, path: str = TASKS, body: Any = None, **headers: str) -> Any:
    text = body if isinstance(body, str) else json.dumps(body if body is not None else {})
    return client.generic("POST", path, text, content_type="application/json", headers=headers)


def wanted(example: Example, **changes: Any) -> dict[str, Any]:
    return {"name": "train", "queue": example.dev_queue.name, "command": ["true"], **changes}


def test_a_task_with_a_queue_waits_in_it(api_as: As, alice: User, example: Example) -> None:
    client = api_as(alice)

    answer = post(client, body=wanted(example))

    assert answer.status_code == 201, answer.content
    task = Task.objects.get(pk=answer.json()["id"])
    assert (task.state, task.queue_id, task.owner_id) == ("queued", example.dev_queue.pk, alice.pk)
    assert task.task_group is not None
    assert task.task_group.queue_id == example.dev_queue.pk
    assert client.get(f"{TASKS}{task.pk}/").json() == answer.json()
    event = Event.objects.get(kind="task.queued")
    assert (event.object_id, event.actor_id) == (str(task.pk), alice.pk)
    assert (event.queue_id, event.policy_id) == (example.dev_queue.pk, example.dev.pk)


def test_a_queue_is_addressed_by_its_id_as_well(api_as: As, alice: User, example: Example) -> None:
    for queue in (example.dev_queue.pk, str(example.dev_queue.pk)):
        answer = post(api_as(alice), body=wanted(example, queue=queue))

        assert answer.json()["queue"] == example.dev_queue.name


def test_a_draft_is_changed_enqueued_and_dequeued(
    api_as: As, alice: User, example: Example
) -> None:
    client = api_as(alice)
    draft = post(client, body={"name": "later"})
    assert (draft.status_code, draft.json()["state"]) == (201, "draft")
    path = f"{TASKS}{draft.json()['id']}/"

    incomplete = post(client, f"{path}enqueue/", {"queue": example.dev_queue.name})
    changed = client.patch(path, {"command": ["sleep", "1"]}, headers={"If-Match": draft["ETag"]})
    stale = client.patch(path, {"name": "x"}, headers={"If-Match": draft["ETag"]})
    queued = post(client, f"{path}enqueue/", {"queue": example.dev_queue.name})
    late = client.patch(path, {"name": "x"})
    back = post(client, f"{path}dequeue/")

    assert (incomplete.status_code, list(incomplete.json()["fields"])) == (400, ["command"])
    assert changed.json()["command"] == ["sleep", "1"]
    assert (stale.status_code, stale.json()["code"]) == (412, "stale")
    assert (queued.json()["state"], queued.json()["queue"]) == ("queued", example.dev_queue.name)
    assert late.status_code == 409
    assert (back.json()["state"], back.json()["queue"]) == ("draft", None)
    kinds = Event.objects.filter(object_id=draft.json()["id"]).order_by("id")
    assert [event.kind for event in kinds] == [
        "task.draft",
        "task.changed",
        "task.queued",
        "task.draft",
    ]
    assert kinds[2].queue_id == example.dev_queue.pk


def test_a_waiting_task_ends_at_once_and_runs_again(
    api_as: As, alice: User, example: Example
) -> None:
    client = api_as(alice)
    path = f"{TASKS}{post(client, body=wanted(example)).json()['id']}/"

    aborted = post(client, f"{path}abort/").json()
    twice = post(client, f"{path}abort/").json()
    again = post(client, f"{path}run-again/").json()

    assert (aborted["state"], aborted["state_detail"]) == ("aborted", "aborted by alice")
    assert twice == aborted
    assert (again["state"], again["ended_at"]) == ("queued", None)
    assert again["submitted_at"] > aborted["submitted_at"]


def test_who_sees_what_of_a_task(
    api_as: As, alice: User, bob: User, charlie: User, root: User, example: Example
) -> None:
    environment = {"API_TOKEN": "s3cret", "SHELL": "sh"}
    made = post(api_as(alice), body=wanted(example, environment=environment)).json()
    path = f"{TASKS}{made['id']}/"

    assert made["environment"] == {"API_TOKEN": "********", "SHELL": "sh"}
    assert api_as(root).get(path).json() == made
    seen = api_as(bob).get(path).json()
    assert (seen["name"], seen["owner"], seen["state"]) == ("train", "alice", "queued")
    assert (seen["command"], seen["environment"], seen["image"]) == (None, None, None)
    assert api_as(charlie).get(path).status_code == 404
    assert APIClient().get(path).status_code == 401


@pytest.mark.parametrize("verb", ["dequeue", "abort"])
def test_only_owner_manager_and_administrator_end_a_task(
    api_as: As, alice: User, bob: User, charlie: User, root: User, example: Example, verb: str
) -> None:
    path = f"{TASKS}{post(api_as(alice), body=wanted(example)).json()['id']}/{verb}/"

    assert post(api_as(charlie), path).status_code == 404
    assert post(api_as(bob), path).status_code == 403
    assert Task.objects.get().state == "queued"
    assert post(api_as(root), path).status_code == 200
    assert Task.objects.get().state != "queued"


def test_logs_are_the_owners_until_the_policy_opens_them(
    api_as: As, alice: User, bob: User, charlie: User, example: Example
) -> None:
    path = f"{TASKS}{post(api_as(alice), body=wanted(example)).json()['id']}/logs/"

    assert api_as(alice).get(path).json()["text"] == ""
    assert api_as(bob).get(path).status_code == 403
    assert api_as(charlie).get(path).status_code == 404
    type(example.dev).objects.filter(pk=example.dev.pk).update(logs_open_to_group=True)
    assert api_as(bob).get(path).status_code == 200
    assert api_as(charlie).get(path).status_code == 404


def test_a_queue_without_permission_answers_404_where_invisible_and_403_where_visible(
    api_as: As, alice: User, charlie: User, example: Example
) -> None:
    refused = post(api_as(charlie), body=wanted(example))
    PolicyGroupPermission.objects.filter(permission__codename="enqueue_policy").delete()
    visible = post(api_as(alice), body=wanted(example))

    assert (refused.status_code, list(refused.json()["fields"])) == (404, ["queue"])
    assert (visible.status_code, list(visible.json()["fields"])) == (403, ["queue"])
    assert Task.objects.count() == 0


def test_a_closed_queue_takes_nothing(api_as: As, alice: User, example: Example) -> None:
    Queue.objects.filter(pk=example.dev_queue.pk).update(removed_at="2026-01-01T00:00:00Z")

    assert post(api_as(alice), body=wanted(example)).status_code == 404


BAD = [
    pytest.param("{", 400, "body", id="not JSON"),
    pytest.param("[]", 400, "body", id="a list"),
    pytest.param("", 400, "body", id="no body"),
    pytest.param('{"name": "x", "priority": NaN}', 400, "priority", id="NaN"),
    pytest.param(b"\xff\xfe".decode("latin1"), 400, "body", id="no UTF-8"),
    pytest.param('{"name": "\\ud800"}', 400, "body", id="half a surrogate pair"),
    pytest.param({"comand": ["x"]}, 400, "comand", id="an unknown field"),
    pytest.param({"name": ""}, 400, "name", id="an empty name"),
    pytest.param({"name": None}, 400, "name", id="no name"),
    pytest.param({"name": "a\x00b"}, 400, "name", id="NUL in the name"),
    pytest.param({"name": "x" * 201}, 400, "name", id="a long name"),
    pytest.param({"image": "-v /:/host"}, 400, "image", id="an image that is an option"),
    pytest.param({"command": "ls"}, 400, "command", id="a command that is a text"),
    pytest.param({"command": [1]}, 400, "command.0", id="an argument that is a number"),
    pytest.param({"command": ["a\x00"]}, 400, "command.0", id="NUL in an argument"),
    pytest.param({"command": [""]}, 400, "command.0", id="no program"),
    pytest.param({"command": []}, 400, "command", id="nothing to run"),
    pytest.param({"command": ["x" * 131_072]}, 400, "command.0", id="an argument too long"),
    pytest.param({"command": ["x" * 100_000] * 21}, 400, "command", id="2 MB of command"),
    pytest.param({"command": ["x" * 2_000_000]}, 400, "command.0", id="2 MB in one argument"),
    pytest.param({"command": ["x" * 5_000_000]}, 413, "body", id="5 MB"),
    pytest.param({"environment": {"A B": "x"}}, 400, "environment.A B", id="a bad variable"),
    pytest.param({"environment": {"A": "x\ny"}}, 400, "environment.A", id="a line break"),
    pytest.param({"environment": {"A": 1}}, 400, "environment", id="a number in a variable"),
    pytest.param({"working_dir": "tmp"}, 400, "working_dir", id="a relative path"),
    pytest.param({"working_dir": "/a/../b"}, 400, "working_dir", id="a path with .."),
    pytest.param({"volumes": ["data"]}, 400, "volumes", id="a volume that is not allowed"),
    pytest.param({"priority": 1}, 400, "priority", id="a priority above the queue's"),
    pytest.param({"priority": 2**70}, 400, "priority", id="a huge priority"),
    pytest.param({"priority": 0.5}, 400, "priority", id="half a priority"),
    pytest.param({"replicas": 0}, 400, "replicas", id="no replicas"),
    pytest.param({"time_limit_s": 0}, 400, "time_limit_s", id="no time"),
    pytest.param({"retries": -1}, 400, "retries", id="negative retries"),
    pytest.param({"request": {"gpu": 2}}, 400, "request", id="a request of a fixed profile"),
    pytest.param({"request": {"gup": 4}}, 400, "request.gup", id="an unknown key"),
    pytest.param({"request": {"gpu": -1}}, 400, "request.gpu", id="a negative amount"),
    pytest.param({"request": {"gpu": "0.1234"}}, 400, "request.gpu", id="four places"),
    pytest.param({"abort_callback": {}}, 400, "abort_callback.script", id="no script"),
    pytest.param(
        {"abort_callback": {"script": "x", "language": "perl"}},
        400,
        "abort_callback.language",
        id="a script in perl",
    ),
    pytest.param({"tags": ["a", "a"]}, 400, "tags.1", id="a tag twice"),
    pytest.param({"tags": [""]}, 400, "tags.0", id="an empty tag"),
    pytest.param({"queue": "nowhere"}, 404, "queue", id="an unknown queue"),
    pytest.param({"queue": "a\x00b"}, 404, "queue", id="NUL in the queue"),
    pytest.param({"checkpoint_volume": "a\x00b"}, 400, "checkpoint_volume", id="NUL in a text"),
    pytest.param({"queue": 2**80}, 404, "queue", id="a huge queue id"),
    pytest.param({"queue": -1}, 404, "queue", id="a negative queue id"),
    pytest.param({"queue": True}, 400, "queue", id="a queue that is true"),
    pytest.param({"replicas": 3}, 422, "request.gpu", id="more than every pool has"),
    pytest.param(
        {"replicas": 4, "is_preemptible": False}, 422, "request.gpu", id="above the reservation"
    ),
]


@pytest.mark.parametrize(("body", "status", "field"), BAD)
def test_bad_input_names_the_field_and_stores_nothing(
    api_as: As, alice: User, example: Example, body: Any, status: int, field: str
) -> None:
    sent = wanted(example, **body) if isinstance(body, dict) else body

    answer = post(api_as(alice), body=sent)

    assert answer.status_code == status, answer.content
    assert field in answer.json()["fields"], answer.json()
    assert answer.json()["detail"].endswith((".", "?"))
    assert not Task.objects.exists()
    assert not Event.objects.filter(kind__startswith="task.").exists()


def test_the_same_idempotency_key_and_body_give_the_same_task(
    api_as: As, alice: User, bob: User, example: Example
) -> None:
    key = {"Idempotency-Key": "run-17"}

    first = post(api_as(alice), body=wanted(example), **key)
    second = post(api_as(alice), body=wanted(example), **key)
    other = post(api_as(alice), body=wanted(example, name="else"), **key)
    anothers = post(api_as(bob), body=wanted(example), **key)

    assert (second.status_code, second.json()) == (201, first.json())
    assert (other.status_code, list(other.json()["fields"])) == (409, ["Idempotency-Key"])
    assert anothers.json()["id"] != first.json()["id"]
    assert Task.objects.count() == 2


def test_a_bulk_request_is_answered_item_by_item(api_as: As, alice: User, example: Example) -> None:
    items = [
        wanted(example, name="one"),
        {"name": "draft"},
        wanted(example, priority=5),
        "nonsense",
        wanted(example, queue="nowhere"),
        wanted(example, name="two", replicas=2),
    ]

    answers = post(api_as(alice), f"{TASKS}bulk/", items).json()

    assert [answer["status"] for answer in answers] == [201, 201, 400, 400, 404, 201]
    assert [answer["task"] and answer["task"]["state"] for answer in answers] == [
        "queued",
        "draft",
        None,
        None,
        None,
        "queued",
    ]
    assert list(answers[2]["error"]["fields"]) == ["priority"]
    stored = {str(task.pk) for task in Task.objects.all()}
    assert stored == {answer["task"]["id"] for answer in answers if answer["task"]}
    assert Event.objects.filter(kind="task.queued").count() == 2


def test_a_bulk_request_costs_the_same_queries_for_one_task_and_for_many(
    api_as: As, alice: User, example: Example
) -> None:
    client = api_as(alice)
    counts = []
    for many in (1, 1, 25):
        with CaptureQueriesContext(connection) as queries:
            answer = post(client, f"{TASKS}bulk/", [wanted(example)] * many)
        assert len(answer.json()) == many
        counts.append(len(queries))

    assert counts[1] == counts[2]


def test_a_bulk_request_takes_a_thousand_tasks_and_no_more(
    api_as: As, alice: User, example: Example
) -> None:
    answer = post(api_as(alice), f"{TASKS}bulk/", [wanted(example)] * 1001)

    assert (answer.status_code, list(answer.json()["fields"])) == (400, ["body"])
    assert not Task.objects.exists()


def test_a_person_has_at_most_so_many_tasks_waiting(
    api_as: As, alice: User, bob: User, example: Example
) -> None:
    Queue.objects.filter(pk=example.dev_queue.pk).update(max_waiting=2)
    client = api_as(alice)

    bulk = post(client, f"{TASKS}bulk/", [wanted(example)] * 3).json()
    more = post(client, body=wanted(example))

    assert [answer["status"] for answer in bulk] == [201, 201, 409]
    assert more.status_code == 409
    assert post(api_as(bob), body=wanted(example)).status_code == 201


def test_the_list_is_filtered_scoped_and_costs_the_same_however_long(
    api_as: As, alice: User, bob: User, charlie: User, example: Example
) -> None:
    client = api_as(alice)
    post(client, body=wanted(example, name="first one", tags=["night", "größe"]))
    post(client, body={"name": "draft"})
    post(api_as(bob), body=wanted(example, name="bobs"))

    def names(reader: User, query: str = "") -> list[str]:
        answer = api_as(reader).get(f"{TASKS}{query}")
        assert answer.status_code == 200, answer.content
        return [task["name"] for task in answer.json()["results"]]

    assert names(alice) == ["bobs", "draft", "first one"]
    assert names(bob) == ["bobs", "first one"]
    assert names(charlie) == []
    assert names(alice, "?tag=night") == ["first one"]
    assert names(alice, "?tag=größe") == ["first one"]
    assert names(alice, "?tag=nigh") == []
    assert names(alice, "?state=queued,running&owner=bob") == ["bobs"]
    assert names(alice, f"?queue={example.dev_queue.name}&q=FIRST") == ["first one"]
    hidden = client.get(f"{TASKS}?queue={example.research_queue.name}")
    assert list(hidden.json()["fields"]) == ["queue"]
    assert names(alice, f"?policy={example.dev.pk}") == ["bobs", "first one"]
    assert list(client.get(f"{TASKS}?stat=x").json()["fields"]) == ["stat"]
    assert list(client.get(f"{TASKS}?state=x").json()["fields"]) == ["state"]

    with CaptureQueriesContext(connection) as few:
        client.get(TASKS)
    post(client, f"{TASKS}bulk/", [wanted(example)] * 40)
    with CaptureQueriesContext(connection) as many:
        assert len(client.get(TASKS).json()["results"]) == 43
    assert len(few) == len(many)


def test_the_list_goes_on_by_keys(api_as: As, alice: User, example: Example) -> None:
    client = api_as(alice)
    post(client, f"{TASKS}bulk/", [wanted(example, name=f"t{n}") for n in range(5)])

    first = client.get(f"{TASKS}?limit=3").json()
    second = client.get(first["next"]).json()

    seen = [task["name"] for task in first["results"] + second["results"]]
    assert sorted(seen) == [f"t{n}" for n in range(5)]
    assert second["next"] is None


def test_equal_tasks_behind_the_first_wait_for_the_same_reason(
    api_as: As, alice: User, example: Example
) -> None:
    client = api_as(alice)
    ids = [post(client, body=wanted(example)).json()["id"] for _ in range(3)]
    reason = {"code": "capacity", "details": []}
    said = {"head_id": ids[0], "reason_code": "capacity", "reason": {"reasons": [reason]}}
    TaskGroup.objects.update(**said)

    codes = [client.get(f"{TASKS}{one}/explain/").json()["code"] for one in ids]
    client.post(f"{TASKS}{ids[0]}/abort/")
    later = client.get(f"{TASKS}{ids[1]}/explain/").json()["code"]

    assert codes == ["capacity"] * 3
    # What was said about a task that is gone says nothing about those that stay.
    assert later == ""


def test_a_task_that_no_pass_has_seen_has_a_place_and_no_reason_yet(
    api_as: As, alice: User, charlie: User, example: Example
) -> None:
    client = api_as(alice)
    first = post(client, body=wanted(example)).json()["id"]
    second = post(client, body=wanted(example)).json()["id"]

    explained = client.get(f"{TASKS}{first}/explain/").json()
    behind = client.get(f"{TASKS}{second}/explain/").json()

    assert (explained["code"], explained["position"]) == ("", 1)
    assert (behind["code"], behind["position"]) == ("", 2)
    assert api_as(charlie).get(f"{TASKS}{first}/explain/").status_code == 404


def test_an_id_that_is_none_answers_404(api_as: As, alice: User) -> None:
    assert api_as(alice).get(f"{TASKS}17/").json()["code"] == "not_found"
