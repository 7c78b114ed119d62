"""Queues through REST."""

import pytest
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.configuration.selectors import live_document
from apps.policies.models import PolicyGroupPermission, Profile, Queue
from tests.configuration.api.common import V1, SignIn
from tests.people import Example

pytestmark = pytest.mark.django_db


def test_queue_admins_do_queues_and_nothing_else(
    api_as: SignIn, quinn: User, example: Example
) -> None:
    client = api_as(quinn)
    policy = f"{V1}/policies/{example.dev.pk}/"

    made = client.post(f"{policy}profiles/", {"profile": "2xGPU", "queue": "small"})
    renamed = client.patch(f"{V1}/queues/small/", {"name": "smaller", "grace_s": 5})
    ordered = client.post(
        f"{V1}/queues/reorder/",
        {"profile": "4xGPU", "order": ["research-4xgpu", "dev-4xgpu"]},
    )
    removed = client.delete(f"{policy}profiles/{made.json()['profile']['id']}/")

    assert made.status_code == 201
    assert renamed.json()["grace_s"] == 5
    assert client.get(f"{V1}/queues/{made.json()['id']}/").status_code == 404
    assert [row["name"] for row in ordered.json()] == ["research-4xgpu", "dev-4xgpu"]
    assert live_document().profiles[0].queues == ("research-4xgpu", "dev-4xgpu")
    assert removed.status_code == 204
    assert client.patch(policy, {"weight": 2}).status_code == 404
    assert client.post(f"{V1}/policies/", {}).status_code == 403
    assert client.get(f"{V1}/nodes/").status_code == 403


def test_a_profile_is_disconnected_by_its_name_too(admin: APIClient, example: Example) -> None:
    policy = f"{V1}/policies/{example.dev.pk}/profiles/"
    Profile.objects.filter(pk=example.profile.pk).update(name="4 x GPU")

    unknown = [admin.delete(f"{policy}{name}/").status_code for name in ("none", "2xGPU", "9" * 30)]

    assert unknown == [404, 404, 404]
    assert admin.delete(f"{policy}4 x GPU/").status_code == 204
    example.dev_queue.refresh_from_db()
    assert example.dev_queue.removed_at is not None


def test_renaming_keeps_the_id_and_the_grants(admin: APIClient, example: Example) -> None:
    grants = PolicyGroupPermission.objects.count()

    taken = admin.patch(f"{V1}/queues/dev-4xgpu/", {"name": "research-4xgpu"})
    bad = admin.patch(f"{V1}/queues/dev-4xgpu/", {"name": "Not allowed"})
    renamed = admin.patch(f"{V1}/queues/{example.dev_queue.pk}/", {"name": "dev-large"})

    assert "name" in taken.json()["fields"]
    assert "name" in bad.json()["fields"]
    assert renamed.json()["id"] == example.dev_queue.pk
    assert PolicyGroupPermission.objects.count() == grants
    assert admin.get(f"{V1}/queues/dev-large").json()["id"] == example.dev_queue.pk


def test_a_queue_is_found_by_name_first(admin: APIClient, example: Example) -> None:
    other = example.research_queue.pk
    # One from before names needed a letter.
    Queue.objects.filter(name="dev-4xgpu").update(name=str(other))

    assert admin.get(f"{V1}/queues/{other}/").json()["policy"]["name"] == "Dev"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"idle_warn_minutes": 4}, "idle_warn_minutes"),
        ({"idle_stop_minutes": 10_081, "idle_warn_minutes": 30}, "idle_stop_minutes"),
        ({"idle_stop_minutes": 60}, "idle_stop_minutes"),
        ({"idle_stop_minutes": 30, "idle_warn_minutes": 30}, "idle_stop_minutes"),
        ({"idle_stop_minutes": "soon", "idle_warn_minutes": 30}, "idle_stop_minutes"),
    ],
)
def test_an_idle_rule_that_cannot_be_names_its_field(
    admin: APIClient, example: Example, given: dict[str, object], field: str
) -> None:
    path = f"{V1}/queues/{example.dev_queue.name}/"
    refused = admin.patch(path, given, format="json")

    assert (refused.status_code, list(refused.json()["fields"])) == (400, [field])
    example.dev_queue.refresh_from_db()
    assert example.dev_queue.idle_warn_minutes is None


def test_an_idle_rule_is_set_changed_and_removed(admin: APIClient, example: Example) -> None:
    path = f"{V1}/queues/{example.dev_queue.name}/"
    for rule in ((30, 60), (30, None), (None, None)):
        changes = dict(zip(("idle_warn_minutes", "idle_stop_minutes"), rule, strict=True))
        answer = admin.patch(path, changes, format="json")
        assert answer.status_code == 200, answer.json()
        assert {name: answer.json()[name] for name in changes} == changes
        [queue] = [
            one
            for policy in admin.get(f"{V1}/configuration/").json()["policies"]
            for one in policy["queues"]
            if one["name"] == example.dev_queue.name
        ]
        assert {name: queue[name] for name in changes} == changes
    assert admin.patch(path, {"idle_warn_minutes": 30, "idle_stop_minutes": 60}).status_code == 200
    assert admin.patch(path, {"idle_warn_minutes": None}, format="json").status_code == 400
