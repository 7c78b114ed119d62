"""Policies and the profiles connected to them, through REST."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import Group
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.configuration.models import Revision
from apps.configuration.selectors import live_document
from apps.configuration.services.policies import MOST_LEVELS
from apps.policies.models import Policy
from tests.configuration.api.common import V1, SignIn, names
from tests.people import Example

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("body", "field"),
    [
        pytest.param({"nam": "x"}, "nam", id="an unknown field"),
        pytest.param({"name": "", "group": "dev"}, "name", id="an empty name"),
        pytest.param({"name": "a\x00", "group": "dev"}, "name", id="a NUL"),
        pytest.param({"name": "a\ud800", "group": "dev"}, "name", id="half of a character"),
        pytest.param({"name": "x", "group": "nobody"}, "group", id="an unknown group"),
        pytest.param(
            {"name": "x", "group": "dev", "parent": "none"}, "parent", id="an unknown parent"
        ),
        pytest.param(
            {"name": "x", "group": "dev", "parent": "Research"},
            "parent",
            id="a parent that has queues",
        ),
        pytest.param(
            {"name": "x", "group": "dev", "reserved": {"gpu": -1}}, "reserved.gpu", id="negative"
        ),
        pytest.param(
            {"name": "x", "group": "dev", "limit": {"gpu": "0.1234"}}, "limit.gpu", id="four places"
        ),
        pytest.param(
            {"name": "x", "group": "dev", "limit": {"gpus": 1}}, "limit.gpus", id="an unknown key"
        ),
        pytest.param(
            {"name": "x", "group": "dev", "limit": {"gpu": None}}, "limit.gpu", id="no number"
        ),
        pytest.param({"name": "x", "group": "dev", "limit": [4]}, "limit", id="a list of amounts"),
        pytest.param(
            {"name": "x", "group": "dev", "reserved": 8, "limit": 4},
            "reserved.gpu",
            id="a reservation above the limit",
        ),
        pytest.param({"name": "x", "group": "dev", "weight": -1}, "weight", id="negative weight"),
        pytest.param(
            {"name": "x", "group": "dev", "weight": 2**40}, "weight", id="too large for a column"
        ),
    ],
)
def test_a_bad_policy_is_refused_by_field_and_nothing_is_made(
    admin: APIClient, example: Example, body: dict[str, Any], field: str
) -> None:
    before = live_document(), Revision.objects.count()

    answer = admin.post(f"{V1}/policies/", json.dumps(body), content_type="application/json")

    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid"
    assert field in answer.json()["fields"]
    assert (live_document(), Revision.objects.count()) == before


def test_a_profile_above_the_limit_is_not_connected(admin: APIClient, example: Example) -> None:
    admin.patch(f"{V1}/policies/{example.dev.pk}/", {"limit": 4, "reserved": 4})

    answer = admin.post(f"{V1}/policies/{example.dev.pk}/profiles/", {"profile": "8xGPU"})

    assert answer.status_code == 400
    assert answer.json()["fields"] == {
        "profile": "8xGPU takes 8 GPU, more than the limit of 4 of policy Dev"
    }


def test_a_policy_with_its_queue_opens_to_its_group(
    admin: APIClient, api_as: SignIn, alice: User, bob: User, charlie: User, example: Example
) -> None:
    made = admin.post(
        f"{V1}/policies/",
        {"name": "New", "group": "dev", "reserved": {"gpu": "1/7"}, "limit": 2},
        format="json",
    ).json()
    queue = admin.post(f"{V1}/policies/{made['id']}/profiles", {"profile": "2xGPU"})

    assert made["reserved"] == {"gpu": "1/7"}
    assert made["limit"] == {"gpu": "2"}
    assert queue.status_code == 201
    assert queue.json()["name"] == "new-2xgpu"
    for person in (alice, bob):
        client = api_as(person)
        assert names(client.get(f"{V1}/policies/")) == ["Dev", "New"]
        assert names(client.get(f"{V1}/queues/")) == ["dev-4xgpu", "new-2xgpu"]
        assert names(client.get(f"{V1}/profiles/")) == ["4xGPU", "2xGPU"]
        assert names(client.get(f"{V1}/pools/")) == []
    assert api_as(charlie).get(f"{V1}/queues/new-2xgpu/").status_code == 404
    assert api_as(charlie).get(f"{V1}/policies/{made['id']}/").status_code == 404


def test_a_removed_policy_frees_its_name(admin: APIClient, example: Example) -> None:
    removed = admin.delete(f"{V1}/policies/{example.dev.pk}/")
    again = admin.post(f"{V1}/policies/", {"name": "Dev", "group": "dev"})

    assert removed.status_code == 204
    assert again.status_code == 201
    assert names(admin.get(f"{V1}/queues/")) == ["research-4xgpu"]
    assert admin.delete(f"{V1}/policies/{example.dev.pk}/").status_code == 404


def test_circles_of_parents_are_refused(admin: APIClient, research_group: Group) -> None:
    ids = {}
    for name, parent in (("top", None), ("middle", "top"), ("bottom", "middle")):
        body = {"name": name, "group": "research", "parent": parent}
        ids[name] = admin.post(f"{V1}/policies/", body, format="json").json()["id"]

    answer = admin.patch(f"{V1}/policies/{ids['top']}/", {"parent": "bottom"})

    assert answer.status_code == 400
    assert "circle" in answer.json()["fields"]["parent"]
    assert admin.delete(f"{V1}/policies/{ids['top']}/").status_code == 409
    assert Policy.objects.get(name="top").parent is None


def test_a_tree_of_policies_is_as_deep_as_the_bound(
    admin: APIClient, research_group: Group
) -> None:
    def made(name: str, parent: str | None) -> Any:
        body = {"name": name, "group": "research", "parent": parent}
        return admin.post(f"{V1}/policies/", body, format="json")

    parent = None
    for level in range(MOST_LEVELS):
        answer = made(f"level-{level}", parent)
        assert answer.status_code == 201, answer.content
        parent = f"level-{level}"
    above = made("above", None).json()["id"]
    top = Policy.objects.get(name="level-0").pk

    for refused in (
        made("too deep", parent),
        admin.patch(f"{V1}/policies/{top}/", {"parent": "above"}, format="json"),
    ):
        assert refused.status_code == 400
        assert "at most 16" in refused.json()["fields"]["parent"]
    assert Policy.objects.get(pk=top).parent is None
    assert admin.delete(f"{V1}/policies/{above}/").status_code == 204


def test_a_policy_with_children_gets_no_queues(admin: APIClient, example: Example) -> None:
    body = {"name": "top", "group": "dev"}
    top = admin.post(f"{V1}/policies/", body, format="json").json()["id"]
    admin.patch(f"{V1}/policies/{example.dev.pk}/", {"parent": "top"})

    answer = admin.post(f"{V1}/policies/{top}/profiles/", {"profile": "2xGPU"})

    assert answer.status_code == 409
    assert "children" in answer.json()["detail"]


def test_another_group_takes_over_the_permissions(
    admin: APIClient, api_as: SignIn, alice: User, charlie: User, example: Example
) -> None:
    admin.patch(f"{V1}/policies/{example.dev.pk}/", {"group": "research"})

    assert names(api_as(alice).get(f"{V1}/queues/")) == []
    assert names(api_as(charlie).get(f"{V1}/queues/")) == ["dev-4xgpu", "research-4xgpu"]
