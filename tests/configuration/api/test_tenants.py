"""REST of tenants, and what administrators of one do by REST."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from rest_framework.test import APIClient

from apps.accounts.models import Tenant, TenantGroup, User
from apps.accounts.services.groups import group_members_add
from apps.accounts.services.people import user_create
from apps.policies.models import Policy, Profile, Queue
from tests.configuration.api.common import V1, SignIn, names
from tests.page_words import words_on
from tests.people import Example
from tests.tenants import RIVAL, Organisations

pytestmark = pytest.mark.django_db


def test_tenants_are_for_administrators_of_the_installation(
    organisations: Organisations, api_as: SignIn, alice: User, quinn: User
) -> None:
    path = f"{V1}/tenants/{organisations.acme.tenant.pk}/"
    for person in (alice, quinn, organisations.acme.admin, organisations.acme.member):
        client = api_as(person)
        answers = [client.get(f"{V1}/tenants/"), client.get(path), client.post(f"{V1}/tenants/")]
        answers += [client.patch(path), client.delete(path)]
        assert {answer.status_code for answer in answers} == {403}
        assert words_on("".join(answer.content.decode() for answer in answers), "acme") == []


def test_rules_count_who_came_to_another_tenant_and_keep_them(
    organisations: Organisations, api_as: SignIn, admin: APIClient, root: User
) -> None:
    acme, rival = organisations.acme, organisations.rival
    rules = f"{V1}/access-rules/"
    rule = {"kind": "policy", "object": str(acme.team.pk), "level": "read"}
    late, team = f"{RIVAL}-late", Group.objects.create(name=f"{RIVAL}-late-group")
    person = user_create(username=late, password=None)
    named = {"users": ["ada", late], "groups": [team.name]}
    made = admin.post(rules, {**rule, **named}, format="json").json()
    group_members_add(actor=root, group=rival.group, users=[person])
    TenantGroup.objects.create(tenant=rival.tenant, group=team)
    client, path = api_as(acme.admin), f"{rules}{made['id']}/"

    seen = client.get(path)
    listed = client.get(rules)
    tag = {"If-Match": seen.headers["ETag"]}
    guess = client.patch(path, {"users": [late]}, format="json", headers=tag)
    changed = client.patch(path, {"users": ["adam"], "groups": []}, format="json", headers=tag)

    assert [one["name"] for one in seen.json()["subjects"]] == ["ada"]
    assert (seen.json()["others"], made["others"]) == (2, 0)
    assert guess.status_code == 400
    assert changed.json()["others"] == 2
    assert RIVAL not in "".join(one.content.decode() for one in (seen, listed, changed))
    after = [one["name"] for one in admin.get(path).json()["subjects"]]
    assert after == [team.name, "adam", late]
    assert client.delete(path).status_code == 204
    assert admin.get(path).status_code == 404


def test_a_tenant_is_made_read_changed_and_removed(admin: APIClient, example: Example) -> None:
    Group.objects.create(name="heads")
    body = {"top": "Dev", "admin_group": "heads", "groups": ["dev"]}

    made = admin.post(f"{V1}/tenants/", body, format="json")
    path = f"{V1}/tenants/{made.json()['id']}/"
    changed = admin.patch(path, {"groups": ["dev", "research"]}, format="json")

    assert made.status_code == 201
    assert made.json() | {"id": 0} == {
        "id": 0,
        "name": "Dev",
        "top": {"id": example.dev.pk, "name": "Dev"},
        "admin_group": "heads",
        "groups": [{"id": example.dev.group_id, "name": "dev"}, *made.json()["groups"][1:]],
        "policies": 1,
        "people": 0,
    }
    assert [one["name"] for one in changed.json()["groups"]] == ["dev", "heads", "research"]
    assert names(admin.get(f"{V1}/tenants/")) == ["Dev"]
    assert admin.get(path).json() == changed.json()
    assert admin.delete(path).status_code == 204
    assert not Tenant.objects.exists()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"top": "Nothing"}, "top"),
        ({"admin_group": "nobody"}, "admin_group"),
        ({"groups": ["nobody"]}, "groups"),
        ({"groups": []}, "groups"),
        ({"admin_group": "Admins"}, "admin_group"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_bad_input_names_the_field(
    admin: APIClient, example: Example, changes: dict[str, Any], field: str
) -> None:
    Group.objects.create(name="heads")
    body = {"top": "Dev", "admin_group": "heads", "groups": ["dev"], **changes}

    answer = admin.post(f"{V1}/tenants/", body, format="json")

    assert answer.status_code == 400
    assert list(answer.json()["fields"]) == [field]
    assert not Tenant.objects.exists()


def test_administrators_of_a_tenant_work_below_its_top(
    organisations: Organisations, api_as: SignIn
) -> None:
    acme, client = organisations.acme, api_as(organisations.acme.admin)
    body = {"name": "acme-new", "group": "acme-team-group", "parent": "acme-top"}

    preview = client.post(f"{V1}/policies/preview/", {**body, "reserved": 2}, format="json")
    made = client.post(f"{V1}/policies/", {**body, "reserved": 2}, format="json")
    path = f"{V1}/policies/{made.json()['id']}/"
    beyond = client.patch(path, {"reserved": 3}, format="json")
    connected = client.post(f"{path}profiles/", {"profile": "4xGPU"}, format="json")
    queue = f"{V1}/queues/{connected.json()['name']}/"

    assert [row["policy"] for row in preview.json()["policies"]] == [
        "acme-top",
        "acme-team",
        "acme-new",
    ]
    assert preview.json()["pools"] == []
    assert made.status_code == 201
    assert list(beyond.json()["fields"]) == ["reserved.gpu"]
    assert client.post(f"{path}pause/", {"reason": "x"}, format="json").status_code == 200
    assert client.post(f"{path}resume/").status_code == 200
    assert client.patch(queue, {"max_waiting": 3}, format="json").status_code == 200
    assert client.patch(queue, {"max_priority": 3}, format="json").status_code == 400
    assert client.delete(queue).status_code == 204
    assert client.delete(path).status_code == 204
    assert not Queue.objects.filter(policy__name="acme-new", removed_at=None).exists()
    assert Policy.objects.get(pk=acme.team.pk).removed_at is None


def test_profiles_of_others_show_what_a_task_takes(
    organisations: Organisations, api_as: SignIn
) -> None:
    client, team = api_as(organisations.acme.admin), organisations.acme.team
    Profile.objects.filter(name="8xGPU").update(extra_permissions=["root"])
    Profile.objects.update(description="for rival-only")

    rows = {row["name"]: row for row in client.get(f"{V1}/profiles/").json()["results"]}
    path = f"{V1}/policies/{team.pk}/profiles/"
    connected = client.post(path, {"profile": "8xGPU"}, format="json")

    assert list(rows) == ["4xGPU", "2xGPU", "0.5xGPU"]
    assert rows["4xGPU"]["request"]
    assert not {"description", "device_models", "volumes", "links"} & rows["4xGPU"].keys()
    assert rows["2xGPU"]["description"] == "for rival-only"
    assert (connected.status_code, list(connected.json()["fields"])) == (400, ["profile"])


def test_the_top_is_for_administrators_of_the_installation(
    organisations: Organisations, api_as: SignIn
) -> None:
    client, top = api_as(organisations.acme.admin), organisations.acme.top
    path = f"{V1}/policies/{top.pk}/"

    answers = [
        client.patch(path, {"limit": 100}, format="json"),
        client.post(f"{path}preview/", {"limit": 100}, format="json"),
        client.post(f"{path}pause/", {"reason": "x"}, format="json"),
        client.put(f"{path}exceeders/", {"users": [], "groups": []}, format="json"),
        client.post(f"{path}profiles/", {"profile": "4xGPU"}, format="json"),
        client.put(f"{path}restriction/", {"is_restricted": True, "people": []}, format="json"),
        client.delete(path),
    ]

    assert {answer.status_code for answer in answers} == {403}


def test_people_and_groups_are_restricted(organisations: Organisations, api_as: SignIn) -> None:
    acme, rival = organisations.acme, organisations.rival
    client = api_as(acme.admin)

    listed = client.get(f"{V1}/users/").json()["results"]
    foreign = {"users": [rival.member.username]}
    added = client.post(f"{V1}/groups/{acme.group.pk}/members/", foreign, format="json")
    wide = {"groups": ["acme-team-group", "research"]}
    widened = client.patch(f"{V1}/users/{acme.member.pk}/", wide, format="json")
    kept = client.patch(f"{V1}/users/{acme.member.pk}/", {"first_name": "Ada"}, format="json")
    out = client.patch(f"{V1}/users/{acme.member.pk}/", {"groups": []}, format="json")
    by_group = [
        client.get(f"{V1}/users/?group={one.pk}").json()["results"]
        for one in (Group.objects.get(name="Users"), rival.group, acme.group)
    ]

    assert [one["username"] for one in listed] == ["ada", "adam"]
    assert names(client.get(f"{V1}/groups/")) == ["acme-admin-group", "acme-team-group"]
    assert client.get(f"{V1}/users/{rival.member.pk}/").status_code == 404
    assert client.get(f"{V1}/groups/{rival.group.pk}/members/").status_code == 404
    assert (added.status_code, list(added.json()["fields"])) == (400, ["users"])
    assert (widened.status_code, list(widened.json()["fields"])) == (400, ["groups"])
    assert kept.status_code == 200
    assert (out.status_code, list(out.json()["fields"])) == (400, ["groups"])
    assert [len(rows) for rows in by_group] == [0, 0, 1]


def test_vaults_of_the_tenants_groups_are_theirs(
    organisations: Organisations, api_as: SignIn
) -> None:
    acme, client = organisations.acme, api_as(organisations.acme.admin)
    body: dict[str, Any] = {"name": "shared", "group": acme.group.name}
    body |= {"text": "environment.A = 1", "enforced": ["environment.A"]}

    made = client.post(f"{V1}/vaults/", body, format="json")
    path = f"{V1}/vaults/{made.json()['id']}/"

    assert made.status_code == 201
    assert client.get(path).json()["text"]
    assert client.delete(path).status_code == 204
    assert api_as(acme.member).post(f"{V1}/vaults/", body, format="json").status_code == 403
