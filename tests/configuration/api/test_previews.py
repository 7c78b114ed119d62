"""Previews of provisioning the draft, or saving a policy; nothing is kept."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.configuration.models import Revision
from apps.configuration.selectors import draft_document, live_document
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.preview import draft_preview
from apps.configuration.services.provision import document_provision
from apps.events.models import Event
from apps.policies.document import parse
from apps.policies.models import DraftState, LiveState, Policy, Pool, Profile, Queue
from apps.tasks.models import Attempt, Task, TaskGroup
from tests.allocation.state import enqueue, make_node
from tests.configuration.api.common import V1, SignIn
from tests.people import EXAMPLE, Example

pytestmark = pytest.mark.django_db

DRAFT = f"{V1}/configuration/draft/preview/"


def everything() -> list[Any]:
    """All rows that a preview could have touched."""
    models = (Event, Revision, DraftState, LiveState, Policy, Pool, Profile, Queue, TaskGroup, Task)
    rows: list[Any] = [list(model._default_manager.order_by("pk").values()) for model in models]
    return [*rows, list(Attempt.objects.order_by("pk").values()), live_document(), draft_document()]


def saved_draft(admin: APIClient) -> dict[str, Any]:
    document: dict[str, Any] = admin.get(f"{V1}/configuration/draft/").json()
    return document


def without_profile(document: dict[str, Any]) -> None:
    """A draft without 4xGPU, the only connected profile."""
    document["profiles"] = document["profiles"][1:]
    for pool in document["pools"]:
        pool["profiles"] = [name for name in pool["profiles"] if name != "4xGPU"]


def preview_of(admin: APIClient, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = admin.post(path, body, format="json") if body is not None else admin.post(path)
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture
def busy(example: Example, alice: User, charlie: User) -> list[Task]:
    """Bare Metal is full with Dev's tasks; H100 has no node. Three more wait, one of Research."""
    make_node(example.bare_metal, name="b1", gpus=8)
    tasks = enqueue(alice, example.dev_queue, 4)
    run_pass()
    tasks += enqueue(charlie, example.research_queue, 1)
    run_pass()
    return tasks


def test_nothing_is_kept(admin: APIClient, example: Example, busy: list[Task]) -> None:
    document = saved_draft(admin)
    document["pools"][0]["capacity"] = {"gpu": 16, "license": 3}
    without_profile(document)
    document["pools"].append({"name": "new", "capacity": 8})
    before = everything()

    preview_of(admin, DRAFT, document)
    preview_of(admin, DRAFT)
    preview_of(admin, f"{V1}/policies/preview/", {"name": "Third", "group": "dev", "reserved": 8})
    preview_of(
        admin, f"{V1}/policies/{example.dev.pk}/preview/", {"reserved": 4, "group": "research"}
    )

    assert everything() == before


def test_a_draft_that_changes_nothing_does_nothing(admin: APIClient, busy: list[Task]) -> None:
    found = preview_of(admin, DRAFT)

    lists = ("starts", "preempted", "moved", "delayed", "no_longer_preempted", "rejected", "closed")
    assert {name: found[name]["count"] for name in lists} == dict.fromkeys(lists, 0)
    assert (found["passes"], found["is_at_rest"]) == (1, True)
    assert found["waiting"]["count"] == 3
    assert {row["code"] for row in found["waiting"]["rows"]} == {"capacity"}
    assert all(row["sentence"] and row["help"] for row in found["waiting"]["rows"])
    for row in (*found["policies"], *found["pools"]):
        assert row["before"] == row["after"]


def test_a_larger_pool_starts_what_waits_for_it(
    admin: APIClient, example: Example, busy: list[Task]
) -> None:
    make_node(example.bare_metal, name="b2", gpus=8)
    document = saved_draft(admin)
    document["pools"][1]["capacity"] = {"gpu": 16}

    found = preview_of(admin, DRAFT, document)

    rows = found["starts"]["rows"]
    assert {row["task"] for row in rows} <= {str(task.pk) for task in busy}
    assert {(row["policy"], row["tier"], row["pool"]) for row in rows} == {
        ("Research", "reserved", "Bare Metal Low END GPUs"),
        ("Dev", "over_quota", "Bare Metal Low END GPUs"),
    }
    (pool,) = [row for row in found["pools"] if row["pool"] == "Bare Metal Low END GPUs"]
    assert (pool["before"]["use"], pool["after"]["use"]) == ({"gpu": "8"}, {"gpu": "16"})
    assert (pool["before"]["capacity"], pool["after"]["capacity"]) == ({"gpu": "8"}, {"gpu": "16"})
    (dev,) = [row for row in found["policies"] if row["policy"] == "Dev"]
    assert (dev["before"]["over_quota"], dev["after"]["over_quota"]) == ({}, {"gpu": "4"})
    assert (dev["before"]["waiting"], dev["after"]["waiting"]) == (2, 1)
    assert (dev["before"]["reserved"], dev["after"]["reserved"]) == ({"gpu": "8"}, {"gpu": "8"})
    assert (dev["starts"], dev["preempted"]) == (1, 0)


def test_names_of_the_draft_are_used_before_they_have_ids(
    admin: APIClient, example: Example, busy: list[Task]
) -> None:
    document = saved_draft(admin)
    document["pools"].append({"name": "Cloud", "capacity": 8})
    document["pools"][1]["name"] = "Cellar"
    for profile in document["profiles"]:
        for link in profile["pools"]:
            if link["pool"] == "Bare Metal Low END GPUs":
                link["pool"] = "Cellar"
    document["profiles"][0]["pools"].append({"pool": "Cloud"})

    found = preview_of(admin, DRAFT, document)

    pools = {row["pool"]: row for row in found["pools"]}
    assert pools["Cloud"]["before"] is None
    assert pools["Cloud"]["after"] == {"capacity": {"gpu": "8"}, "use": {}, "running": 0}
    assert "Bare Metal Low END GPUs" not in pools
    assert "Cellar has 0 GPUs free" in found["waiting"]["rows"][0]["sentence"]


def test_work_that_could_never_run_any_more_is_listed(
    admin: APIClient, example: Example, busy: list[Task]
) -> None:
    # Else Research reclaims what Dev holds beyond its smaller reservation.
    LiveState.objects.update(preemption="none")

    found = preview_of(
        admin, f"{V1}/policies/{example.dev.pk}/preview/", {"reserved": 2, "limit": 2}
    )

    (row,) = found["rejected"]["rows"]
    assert (row["queue"], row["count"], row["code"]) == (example.dev_queue.name, 2, "never_fits")
    assert "has a limit of 2" in row["sentence"]
    assert found["waiting"]["count"] == 1
    assert found["rejected"]["count"] == 2


def test_a_profile_that_leaves_closes_its_queues_and_running_work_stays(
    admin: APIClient, example: Example, busy: list[Task]
) -> None:
    document = saved_draft(admin)
    without_profile(document)

    found = preview_of(admin, DRAFT, document)

    assert found["closed"]["count"] == 3
    assert {
        (row["queue"], row["closes"], row["tasks_returned"]) for row in found["closed"]["rows"]
    } == {
        (example.dev_queue.name, True, 2),
        (example.research_queue.name, True, 1),
    }
    assert found["waiting"]["count"] == found["preempted"]["count"] == 0
    assert [row["after"]["running"] for row in found["pools"]] == [0, 2]


def test_a_pool_that_leaves_keeps_its_running_work(
    admin: APIClient, example: Example, busy: list[Task]
) -> None:
    document = saved_draft(admin)
    del document["pools"][1]
    document["profiles"][0]["pools"] = [{"pool": "H100 Half a Superpod"}]

    found = preview_of(admin, DRAFT, document)

    assert found["preempted"]["count"] == 0
    (dev,) = [row for row in found["policies"] if row["policy"] == "Dev"]
    assert dev["after"]["running"] == 2
    assert {row["code"] for row in found["waiting"]["rows"]} == {"no_server"}
    pools = {row["pool"]: row["after"] for row in found["pools"]}
    assert pools["Bare Metal Low END GPUs"] is None


def test_another_group_takes_the_tasks_of_who_loses_the_permission(
    admin: APIClient, example: Example, busy: list[Task]
) -> None:
    found = preview_of(admin, f"{V1}/policies/{example.dev.pk}/preview/", {"group": "research"})

    assert found["closed"]["rows"] == [
        {
            "queue": example.dev_queue.name,
            "policy": "Dev",
            "closes": False,
            "tasks_returned": 2,
        }
    ]


def test_a_new_policy_stands_next_to_the_others(
    admin: APIClient, example: Example, busy: list[Task]
) -> None:
    body = {"name": "Third", "group": "dev", "reserved": 8, "parent": None}

    found = preview_of(admin, f"{V1}/policies/preview/", body)

    third = found["policies"][-1]
    assert (third["policy"], third["before"]) == ("Third", None)
    assert third["after"]["reservation"] == {"gpu": "8"}
    assert not Policy.objects.filter(name="Third").exists()


@pytest.fixture
def borrowed(example: Example, root: User, alice: User, charlie: User) -> tuple[list[Task], Task]:
    """Nobody is preempted. Dev borrows Research's reservation, and Research waits for it."""
    settings = {"preemption": "none"}
    draft_write(document=parse({**EXAMPLE, "settings": settings}), actor=root)
    document_provision(actor=root)
    for pool in (example.bare_metal, example.h100):
        make_node(pool, name=pool.name[:4])
    running = enqueue(alice, example.dev_queue, 4)
    run_pass()
    (waiting,) = enqueue(charlie, example.research_queue, 1)
    run_pass()
    return running, waiting


@pytest.mark.parametrize(
    ("then", "is_requeued"), [("requeue", True), ("pause", False), ("end", False)]
)
def test_a_draft_that_allows_reclaim_names_victims_and_beneficiaries(
    admin: APIClient,
    example: Example,
    borrowed: tuple[list[Task], Task],
    then: str,
    is_requeued: bool,
) -> None:
    running, waiting = borrowed
    Queue.objects.filter(pk=example.dev_queue.pk).update(on_preemption=then)
    document = saved_draft(admin)
    assert preview_of(admin, DRAFT, document)["preempted"]["count"] == 0
    document["settings"]["preemption"] = "reclaim"

    found = preview_of(admin, DRAFT, document)

    (start,), (victim,) = found["starts"]["rows"], found["preempted"]["rows"]
    assert (start["task"], start["tier"]) == (str(waiting.pk), "reserved")
    assert start["preempts"] == 1
    assert victim["task"] in {str(task.pk) for task in running}
    assert (victim["policy"], victim["is_requeued"]) == ("Dev", is_requeued)
    assert victim["beneficiary"] == {
        "task": str(waiting.pk),
        "name": waiting.name,
        "queue": example.research_queue.name,
        "policy": "Research",
    }
    assert found["is_at_rest"]
    (dev,) = [row for row in found["policies"] if row["policy"] == "Dev"]
    assert (dev["before"]["running"], dev["after"]["running"]) == (4, 3)
    assert dev["after"]["waiting"] == (1 if is_requeued else 0)
    assert (dev["starts"], dev["preempted"]) == (0, 1)
    assert found["waiting"]["count"] == (1 if is_requeued else 0)


def test_a_larger_reservation_reclaims_at_once(
    admin: APIClient, example: Example, alice: User, charlie: User
) -> None:
    for pool in (example.bare_metal, example.h100):
        make_node(pool, name=pool.name[:4])
    changes = {"reserved": 0}
    admin.patch(f"{V1}/policies/{example.research.pk}/", changes, format="json")
    enqueue(alice, example.dev_queue, 4)
    run_pass()
    enqueue(charlie, example.research_queue, 3)
    run_pass()

    found = preview_of(admin, f"{V1}/policies/{example.research.pk}/preview/", {"reserved": 8})

    assert (found["starts"]["count"], found["preempted"]["count"]) == (2, 2)
    assert {row["policy"] for row in found["preempted"]["rows"]} == {"Dev"}
    (research,) = [row for row in found["policies"] if row["policy"] == "Research"]
    assert (research["after"]["reserved"], research["after"]["waiting"]) == ({"gpu": "8"}, 1)


@pytest.mark.parametrize(
    ("path", "body", "status", "field"),
    [
        pytest.param(DRAFT, {"pools": [{"nam": "x"}]}, 400, "pools[0].nam", id="not a document"),
        pytest.param(
            DRAFT,
            {"pools": [{"name": "x", "capacity": 1}], "profiles": [{"name": "p", "request": 1}]},
            409,
            "profiles[0].pools",
            id="a document with errors",
        ),
        pytest.param(
            f"{V1}/policies/preview/", {"name": "Third"}, 400, "group", id="a policy without group"
        ),
        pytest.param(
            f"{V1}/policies/preview/",
            {"name": "Dev", "group": "dev"},
            409,
            "name",
            id="a name that is taken",
        ),
    ],
)
def test_what_saving_would_refuse_the_preview_refuses(
    admin: APIClient,
    example: Example,
    path: str,
    body: dict[str, Any],
    status: int,
    field: str,
) -> None:
    before = everything()

    answer = admin.post(path, body, format="json")

    assert answer.status_code == status, answer.content
    assert field in answer.json()["fields"]
    assert everything() == before


@pytest.mark.parametrize("body", ["[]", "0", "false", '""'])
@pytest.mark.parametrize("verb", ["preview", "validate"])
def test_a_body_that_is_no_document_is_not_taken_for_none(
    admin: APIClient, verb: str, body: str
) -> None:
    path = f"{V1}/configuration/draft/{verb}/"

    assert admin.post(path, body, content_type="application/json").status_code == 400
    assert admin.post(path, "{}", content_type="application/json").status_code == 200


@pytest.mark.parametrize("who", ["alice", "bob", "charlie", "quinn"])
def test_only_administrators_look_ahead(
    api_as: SignIn, request: pytest.FixtureRequest, example: Example, who: str
) -> None:
    client = api_as(request.getfixturevalue(who))

    assert client.post(DRAFT).status_code == 403
    new = client.post(f"{V1}/policies/preview/", {"name": "x", "group": "dev"}, format="json")
    assert new.status_code == 403
    changed = client.post(f"{V1}/policies/{example.dev.pk}/preview/", {"limit": 4}, format="json")
    # To those who do not even see the policy there is none.
    assert changed.status_code == (403 if who in {"alice", "bob"} else 404)


def test_a_preview_sends_no_notification(
    example: Example,
    busy: list[Task],
    root: User,
    django_capture_on_commit_callbacks: Any,
) -> None:
    with django_capture_on_commit_callbacks() as callbacks:
        draft_preview(actor=root)

    assert callbacks == []


def test_long_lists_are_cut_and_counted(
    admin: APIClient,
    example: Example,
    busy: list[Task],
    alice: User,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("apps.configuration.services.preview.report.MOST_ROWS", 1)

    found = preview_of(admin, DRAFT)

    waiting = found["waiting"]
    assert (waiting["count"], len(waiting["rows"]), waiting["more"]) == (3, 1, 1)
    assert waiting["rows"][0]["count"] == 2
    assert Group.objects.filter(name="dev").exists()
