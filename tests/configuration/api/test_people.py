"""REST of people and groups, for administrators alone."""

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.accounts.services.credentials import credential_create
from apps.accounts.services.people_changes import person_deactivate
from apps.events.models import Event
from apps.policies.models import PolicyGroupPermission
from tests.configuration.api.common import V1, SignIn, names
from tests.page_words import words_on
from tests.people import Example

pytestmark = pytest.mark.django_db


def usernames(answer: object) -> list[str]:
    return [row["username"] for row in answer.json()["results"]]  # type: ignore[attr-defined]  # DRF's


@pytest.mark.parametrize("noun", ["users", "groups"])
def test_who_does_not_administer_learns_nothing_of_people(
    api_as: SignIn, root: User, alice: User, quinn: User, dev_group: Group, noun: str
) -> None:
    known = alice.pk if noun == "users" else dev_group.pk
    verbs = {
        "users": ["deactivate", "activate", "invitation"],
        "groups": ["members", "members/remove"],
    }
    for person in (alice, quinn):
        client = api_as(person)
        refused = [
            client.get(f"{V1}/{noun}/"),
            client.get(f"{V1}/{noun}/{known}/"),
            client.get(f"{V1}/{noun}/?search=root&ordering=last_active"),
            client.post(f"{V1}/{noun}/", {"username": "x", "name": "x"}),
            client.patch(f"{V1}/{noun}/{known}/", {}),
            *(client.post(f"{V1}/{noun}/{known}/{verb}/", {}) for verb in verbs[noun]),
        ]
        assert {answer.status_code for answer in refused} == {403}
        assert words_on("".join(answer.content.decode() for answer in refused), "root") == []


def test_people_are_filtered_and_ordered(
    admin: APIClient, root: User, alice: User, bob: User, charlie: User, dev_group: Group
) -> None:
    User.objects.filter(pk=bob.pk).update(email="robert@example.org")
    person_deactivate(actor=root, user=charlie)
    credential_create(user=alice, label="nightly")

    found = {
        "": ["alice", "bob", "charlie", "root"],
        "?ordering=-username": ["root", "charlie", "bob", "alice"],
        "?search=robert": ["bob"],
        "?status=deactivated": ["charlie"],
        "?status=active&search=li": ["alice"],
        f"?group={dev_group.pk}": ["alice", "bob"],
    }

    for query, want in found.items():
        assert usernames(admin.get(f"{V1}/users/{query}")) == want, query
    assert admin.get(f"{V1}/users/?status=x").status_code == 400
    assert words_on(admin.get(f"{V1}/users/").content.decode(), "secret") == []


def test_pages_by_last_activity_hold_everybody_once(admin: APIClient) -> None:
    # More than a page of plain DRF goes on among equals.
    User.objects.bulk_create(User(username=f"p{number}") for number in range(1600))
    seen: list[str] = []
    address = f"{V1}/users/?ordering=-last_active&limit=500"

    while address:
        page = admin.get(address).json()
        seen += [row["username"] for row in page["results"]]
        address = page["next"]

    assert len(seen) == len(set(seen)) == User.objects.filter(is_service=False).count()


def test_an_invitation_by_rest_gives_its_link_once(admin: APIClient, dev_group: Group) -> None:
    made = admin.post(f"{V1}/users/", {"email": "ada@example.org", "groups": ["dev"], "days": 3})
    row = made.json()

    assert made.status_code == 201
    assert row["link"].startswith("http://testserver/join/")
    assert (row["status"], row["is_mailed"]) == ("pending", False)
    assert [group["name"] for group in row["groups"]] == ["Users", "dev"]
    again = admin.get(f"{V1}/users/{row['id']}/").json()
    assert "link" not in again
    assert again["invitation"]["mail_state"] == "none"
    other = admin.post(f"{V1}/users/{row['id']}/invitation/").json()
    assert other["link"] != row["link"]
    assert admin.delete(f"{V1}/users/{row['id']}/invitation/").status_code == 204
    assert admin.get(f"{V1}/users/{row['id']}/").status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        pytest.param({}, "username", id="nobody"),
        pytest.param({"email": "x"}, "email", id="no address"),
        pytest.param({"username": "ada", "groups": ["nowhere"]}, "groups", id="no such group"),
        pytest.param({"username": "ada", "days": 0}, "days", id="no day"),
        pytest.param({"username": "ada", "is_active": True}, "is_active", id="unknown"),
        pytest.param({"username": "a\0b"}, "username", id="a sign that no name has"),
    ],
)
def test_an_invitation_that_will_not_do_names_the_field(
    admin: APIClient, body: dict[str, object], field: str
) -> None:
    before = User.objects.count()

    answer = admin.post(f"{V1}/users/", body)

    assert answer.status_code == 400
    assert set(answer.json()["fields"]) == {field}
    assert User.objects.count() == before


def test_a_person_is_changed_deactivated_and_activated(
    admin: APIClient, alice: User, research_group: Group
) -> None:
    address = f"{V1}/users/{alice.pk}/"

    changed = admin.patch(address, {"first_name": "Alice", "groups": ["research"]}).json()
    off = admin.post(f"{address}deactivate/").json()
    on = admin.post(f"{address}activate/").json()

    assert changed["first_name"] == "Alice"
    assert sorted(group["name"] for group in changed["groups"]) == ["Users", "research"]
    assert (off["status"], on["status"]) == ("deactivated", "active")
    assert admin.delete(address).status_code == 405
    kinds = Event.objects.filter(object_type="user", object_id=str(alice.pk))
    assert list(kinds.order_by("pk").values_list("kind", flat=True)) == [
        "person.changed",
        "person.groups",
        "person.deactivated",
        "person.activated",
    ]


def test_a_group_is_made_filled_emptied_and_removed(
    admin: APIClient, alice: User, bob: User
) -> None:
    made = admin.post(f"{V1}/groups/", {"name": "night", "description": "At night."}).json()
    address = f"{V1}/groups/{made['id']}/"

    filled = admin.post(f"{address}members/", {"users": ["alice", str(bob.pk)]}).json()
    inside = admin.get(f"{address}members/")
    emptied = admin.post(f"{address}members/remove/", {"users": ["bob"]}).json()
    unknown = admin.post(f"{address}members/", {"users": ["nobody"]})
    renamed = admin.patch(address, {"name": "Night"}).json()

    assert (filled["members"], emptied["members"]) == (2, 1)
    assert usernames(inside) == ["alice", "bob"]
    assert set(unknown.json()["fields"]) == {"users"}
    assert (renamed["name"], renamed["description"]) == ("Night", "At night.")
    assert admin.delete(address).status_code == 204


def test_a_group_says_what_uses_it(
    admin: APIClient, root: User, example: Example, research_group: Group
) -> None:
    admin.put(f"{V1}/policies/{example.dev.pk}/exceeders/", {"users": [], "groups": ["research"]})
    address = f"{V1}/groups/{research_group.pk}/"

    row = admin.get(address).json()
    held = admin.get(f"{address}used-by/").json()
    refused = admin.delete(address)

    assert (row["policies"], row["rules"]) == (1, 1)
    assert [policy["name"] for policy in held["policies"]] == ["Research"]
    assert (held["vaults"], held["removed_vaults"]) == ([], [])
    rules = [(rule["kind"], rule["permissions"], rule["by_policy"]) for rule in held["rules"]]
    assert rules == [
        ("policy", ["exceed limit"], False),
        ("policy", ["enqueue", "view"], True),
    ]
    assert refused.status_code == 409
    night = admin.post(f"{V1}/groups/", {"name": "night"}).json()["id"]
    admin.put(f"{V1}/policies/{example.dev.pk}/exceeders/", {"users": [], "groups": ["night"]})
    admin.delete(f"{V1}/groups/{night}/")
    assert not PolicyGroupPermission.objects.filter(source="person").exists()


def test_built_in_groups_stay_and_somebody_stays_in_admins(admin: APIClient, root: User) -> None:
    admins = Group.objects.get(name="Admins").pk
    users = Group.objects.get(name="Users").pk

    refused = [
        admin.delete(f"{V1}/groups/{admins}/"),
        admin.patch(f"{V1}/groups/{admins}/", {"name": "Chiefs"}),
        admin.post(f"{V1}/groups/{admins}/members/remove/", {"users": ["root"]}),
        admin.post(f"{V1}/groups/{users}/members/remove/", {"users": ["root"]}),
        admin.post(f"{V1}/users/{root.pk}/deactivate/"),
        admin.patch(f"{V1}/users/{root.pk}/", {"groups": []}),
    ]

    assert [answer.status_code for answer in refused] == [409] * 6


@pytest.mark.parametrize("noun", ["users", "groups"])
def test_lists_take_as_many_queries_however_long_they_are(admin: APIClient, noun: str) -> None:
    admin.get(f"{V1}/{noun}/")
    with CaptureQueriesContext(connection) as few:
        admin.get(f"{V1}/{noun}/")
    groups = Group.objects.bulk_create(Group(name=f"g{number}") for number in range(30))
    for user in User.objects.bulk_create(User(username=f"p{number}") for number in range(30)):
        user.groups.set(groups)

    with CaptureQueriesContext(connection) as many:
        rows = admin.get(f"{V1}/{noun}/").json()["results"]

    assert len(rows) > 30
    assert len(many) == len(few)


def test_groups_are_listed_by_name(admin: APIClient, dev_group: Group) -> None:
    assert names(admin.get(f"{V1}/groups/")) == ["Admins", "Queue admins", "Users", "dev"]
    assert names(admin.get(f"{V1}/groups/?name=DE")) == ["dev"]
