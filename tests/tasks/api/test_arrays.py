"""Arrays over REST and on pages: one row with counts, and the elements of one on demand."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.tasks.models import Task
from tests.allocation.state import make_node
from tests.people import Example

pytestmark = pytest.mark.django_db

As = Callable[[User], APIClient]
TASKS = "/api/v1/tasks/"


def body(example: Example, **changes: Any) -> dict[str, Any]:
    return {
        "name": "sweep",
        "queue": example.dev_queue.name,
        "command": ["true"],
        "array": {"size": 5, "limit": 3},
        **changes,
    }


@pytest.fixture
def array(example: Example, alice: User, api_as: As) -> dict[str, Any]:
    """Of five elements, two of which got their GPUs."""
    make_node(example.bare_metal, name="b1")
    made: dict[str, Any] = api_as(alice).post(TASKS, body(example), format="json").data
    run_pass()
    return made


def test_an_array_is_one_row_with_its_elements_by_state(
    array: dict[str, Any], alice: User, api_as: As
) -> None:
    rows = api_as(alice).get(TASKS).data["results"]

    assert [row["id"] for row in rows] == [array["id"]]
    assert rows[0]["array_counts"] == {"allocated": 2, "queued": 1, "left": 2}
    assert (rows[0]["array_id"], rows[0]["array_index"]) == (None, None)
    assert array["array"] == {"size": 5, "limit": 3}
    assert array["array_counts"] == {"left": 5}


def test_the_elements_of_an_array_are_listed_on_demand(
    array: dict[str, Any], alice: User, charlie: User, api_as: As
) -> None:
    rows = api_as(alice).get(TASKS, {"array": array["id"]}).data["results"]

    assert [row["array_index"] for row in rows] == [2, 1, 0]
    assert {str(row["array_id"]) for row in rows} == {str(array["id"])}
    assert api_as(charlie).get(TASKS, {"array": array["id"]}).data["results"] == []


def test_an_array_of_no_id_is_refused(alice: User, api_as: As) -> None:
    reply = api_as(alice).get(TASKS, {"array": "x"})

    assert (reply.status_code, reply.data["fields"]) == (400, {"array": "must be an id"})


def test_a_wrong_array_is_refused_with_the_field(example: Example, alice: User, api_as: As) -> None:
    for wrong, field in (({"size": 0}, "array.size"), ({"size": 1, "limits": 1}, "array.limits")):
        reply = api_as(alice).post(TASKS, body(example, array=wrong), format="json")
        assert reply.status_code == 400
        assert list(reply.data["fields"]) == [field]


def test_a_bulk_request_may_hold_arrays(example: Example, alice: User, api_as: As) -> None:
    reply = api_as(alice).post(f"{TASKS}bulk/", [body(example)], format="json")

    assert reply.data[0]["task"]["array_counts"] == {"left": 5}


def test_an_array_runs_again_as_a_new_task(
    array: dict[str, Any], alice: User, bob: User, api_as: As
) -> None:
    where = f"{TASKS}{array['id']}/"
    assert api_as(bob).post(f"{where}abort/").status_code == 403
    api_as(alice).post(f"{where}abort/")
    reply = api_as(alice).post(f"{where}run-again/", {"all": True}, format="json")
    # Two of them are still being stopped.
    assert reply.status_code == 409


def test_pages_show_an_array_with_its_elements(
    array: dict[str, Any], alice: User, client: Client
) -> None:
    client.force_login(alice)

    shown = client.get("/tasks/").content.decode()
    assert "2 allocated" in shown
    page = client.get(f"/tasks/{array['id']}/").content.decode()
    assert "Array of 5" in page
    Task.objects.filter(pk=array["id"]).update(state="completed", ended_at=timezone.now())
    page = client.get(f"/tasks/{array['id']}/").content.decode()
    assert "Each element of the array has a timeline on its own page." in page
    elements = client.get(f"/tasks/?view=all&array={array['id']}").content.decode()
    assert "Element 2" in elements
    assert "Array sweep" in elements


def test_the_form_makes_an_array(example: Example, alice: User, client: Client) -> None:
    client.force_login(alice)
    given = {"name": "sweep", "queue": example.dev_queue.name, "command": "true"}

    client.post("/tasks/new/", {**given, "array_size": "5", "array_limit": "3"})

    made = alice.tasks.get()
    assert (made.array_count, made.array_limit) == (5, 3)


def test_an_array_runs_with_its_elements(
    array: dict[str, Any], example: Example, alice: User, api_as: As, client: Client
) -> None:
    api = api_as(alice)

    held = api.get(TASKS, {"state": "allocated,running"}).data["results"]
    waiting = api.get(TASKS, {"state": "queued"}).data["results"]
    failed = api.get(TASKS, {"state": "failed"}).data["results"]
    body = {"action": "abort", "filter": {"state": "allocated"}}
    acted = api.post(f"{TASKS}bulk-actions/", body, format="json").data["results"]

    assert [row["id"] for row in held] == [row["id"] for row in waiting] == [array["id"]]
    # What is done with an array would be done with elements in other states.
    assert (failed, acted) == ([], [])
    client.force_login(alice)
    assert "2 allocated" in client.get("/tasks/?view=running").content.decode()
    tabs = client.get("/tasks/tabs/?view=running").content.decode()
    assert "sweep" not in client.get("/tasks/?view=ended").content.decode()
    assert re.search(r'aria-current="page">\s*Running <span[^>]*>1</span>', tabs)


def test_tasks_are_found_by_the_beginning_of_their_id(
    array: dict[str, Any], alice: User, charlie: User, api_as: As
) -> None:
    element = str(Task.objects.filter(array=array["id"]).latest("pk").pk)

    found = api_as(alice).get(TASKS, {"id": element[:30]}).data["results"]
    whole = api_as(alice).get(TASKS, {"id": element.upper()}).data["results"]
    refused = api_as(alice).get(TASKS, {"id": "01a2"})

    assert element in {str(row["id"]) for row in found}
    assert [str(row["id"]) for row in whole] == [element]
    assert refused.json()["fields"] == {"id": "must be an id, or its first characters, at least 6"}
    assert api_as(charlie).get(TASKS, {"id": element[:30]}).data["results"] == []


def test_a_filter_that_names_no_queue_or_policy_is_an_error(
    array: dict[str, Any], example: Example, alice: User, charlie: User, api_as: As
) -> None:
    hidden = {"queue": example.dev_queue.name, "policy": example.dev.name}
    for kind, name in hidden.items():
        assert api_as(alice).get(TASKS, {kind: name}).data["results"]
        unknown = [api_as(charlie).get(TASKS, {kind: given}) for given in (name, "moon", "4711")]
        assert [one.status_code for one in unknown] == [400] * 3
        problem = f"there is no such {kind} that you see"
        assert unknown[0].json()["fields"] == {kind: f"names {name!r}: {problem}"}
        assert unknown[1].json()["fields"] == {kind: f"names 'moon': {problem}"}
