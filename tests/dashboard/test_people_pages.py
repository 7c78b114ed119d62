"""People and groups in the browser, for administrators alone."""

import re

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.access.services.vaults import vault_remove
from apps.accounts.models import User
from apps.accounts.services.credentials import credential_create
from apps.accounts.services.people import user_create
from apps.accounts.services.people_changes import person_deactivate
from apps.tasks.models import Task
from apps.vaults.services.vaults import vault_create
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.dashboard.page_reader import errors_at, folded, text
from tests.page_words import words_on
from tests.people import Example

pytestmark = pytest.mark.django_db

PEOPLE = "/settings/people/"
GROUPS = "/settings/people/groups/"


def names(response: object) -> list[str]:
    """The people of the list, in its order."""
    html = response.content.decode()  # type: ignore[attr-defined]  # Django's test response
    return re.findall(r'href="/settings/people/\d+/"\s+title="([^"]*)"', html)


def test_nobody_but_administrators_learns_that_there_are_such_pages(
    alice: User, quinn: User, root: User, dev_group: Group, client_for: ClientFor
) -> None:
    paths = [PEOPLE, f"{PEOPLE}invite/", GROUPS, f"{GROUPS}new/", f"{GROUPS}{dev_group.pk}/"]
    paths += [f"{PEOPLE}{alice.pk}/{verb}" for verb in ("", "edit/", "deactivate/")]
    for person in (alice, quinn):
        client = client_for(person)
        assert [client.get(path).status_code for path in paths] == [404] * len(paths)
        for verb in ("deactivate/", "activate/", "waiting/", "invitation/", "edit/"):
            assert client.post(f"{PEOPLE}{root.pk}/{verb}").status_code == 404
        for verb in ("add/", "leave/", "delete/", "edit/"):
            assert client.post(f"{GROUPS}{dev_group.pk}/{verb}").status_code == 404
        assert PEOPLE not in client.get("/").content.decode()
    assert PEOPLE in client_for(root).get("/").content.decode()


def test_the_list_is_searched_filtered_and_sorted(
    root: User, alice: User, bob: User, charlie: User, dev_group: Group, client_for: ClientFor
) -> None:
    User.objects.filter(pk=bob.pk).update(first_name="Robert", email="bob@example.org")
    person_deactivate(actor=root, user=charlie)
    client = client_for(root)

    assert names(client.get(PEOPLE)) == ["alice", "Robert", "charlie", "root"]
    assert names(client.get(f"{PEOPLE}?sort=-name")) == ["root", "charlie", "Robert", "alice"]
    assert names(client.get(f"{PEOPLE}?search=ROB+example")) == ["Robert"]
    assert names(client.get(f"{PEOPLE}?status=deactivated")) == ["charlie"]
    assert names(client.get(f"{PEOPLE}?group={dev_group.pk}")) == ["alice", "Robert"]
    assert names(client.get(f"{PEOPLE}?sort=active"))[0] == "root"
    assert "Nobody matches" in text(client.get(f"{PEOPLE}?search=zz"))
    wild = client.get(f"{PEOPLE}?search=%00&status=x&group=9e9&sort=--x&after={'9' * 40}")
    assert wild.status_code == 200


@pytest.mark.parametrize("sort", ["-name", "email", "active"])
def test_2000_people_cost_as_many_queries_as_one_and_every_page_follows_the_one_before(
    root: User, dev_group: Group, client_for: ClientFor, sort: str
) -> None:
    client = client_for(root)
    with CaptureQueriesContext(connection) as one:
        client.get(f"{PEOPLE}?sort={sort}")
    people = [User(username=f"p{number:04}", email=f"{number % 7}@x.org") for number in range(2000)]
    User.groups.through.objects.bulk_create(
        User.groups.through(user_id=user.pk, group_id=dev_group.pk)
        for user in User.objects.bulk_create(people)
    )

    seen: list[str] = []
    query = f"sort={sort}"
    while query:
        with CaptureQueriesContext(connection) as many:
            page = client.get(f"{PEOPLE}?{query}")
        # The next page reads the last row of this one, and groups are there to be read.
        assert len(many) <= len(one) + 2
        seen += names(page)
        found = re.search(r'href="\?([^"]*after=[^"]*)"', page.content.decode())
        query = found[1].replace("&amp;", "&") if found else ""

    assert len(seen) == 2001
    assert len(set(seen)) == 2001


def test_an_invitation_shows_its_link_once(
    root: User, dev_group: Group, client_for: ClientFor
) -> None:
    client = client_for(root)

    empty = client.post(f"{PEOPLE}invite/", {"days": "7"})
    made = client.post(
        f"{PEOPLE}invite/", {"email": "ada@example.org", "groups": [dev_group.pk], "days": "7"}
    )

    assert "Give a user name or an e-mail address" in errors_at("username", empty)
    ada = User.objects.get(email="ada@example.org")
    (link,) = re.findall(r"http://testserver(/join/[\w-]+/)", made.content.decode())[:1]
    assert "No mail server is set up" in text(made)
    assert client_for(root).get(link).status_code == 200
    page = client.get(f"{PEOPLE}{ada.pk}/")
    assert "/join/" not in page.content.decode()
    assert "Pending" in text(page)


def test_the_page_of_a_person_shows_permissions_keys_and_work_and_no_secret(
    example: Example,
    root: User,
    alice: User,
    client_for: ClientFor,
    submit: Submit,
    run_in: RunIn,
) -> None:
    credential, secret = credential_create(user=alice, label="nightly")
    run_in(submit(alice, "first"), example.h100)
    submit(alice, "second")

    page = client_for(root).get(f"{PEOPLE}{alice.pk}/")

    assert f"{example.dev_queue.name} Dev see, enqueue" in text(page)
    assert f"nightly {credential.key}" in text(page)
    assert "first Running" in text(page)
    assert "second Queued" in text(page)
    assert secret not in page.content.decode()


def test_waiting_tasks_of_who_is_deactivated_are_pointed_out_until_somebody_decides(
    example: Example, root: User, alice: User, client_for: ClientFor, submit: Submit
) -> None:
    task = submit(alice, "left")
    client = client_for(root)
    dialog = client.get(f"{PEOPLE}{alice.pk}/deactivate/")
    assert "1 task waits. What becomes of it?" in text(dialog)

    client.post(f"{PEOPLE}{alice.pk}/deactivate/", {"waiting": ""})

    assert "Deactivated people have waiting tasks." in text(client.get(PEOPLE))
    assert Task.objects.get(pk=task.pk).state == "queued"
    client.post(f"{PEOPLE}{alice.pk}/waiting/", {"waiting": "leave"})
    assert "Deactivated people have waiting tasks." not in text(client.get(PEOPLE))
    client.post(f"{PEOPLE}{alice.pk}/waiting/", {"waiting": "take_out"})
    assert Task.objects.get(pk=task.pk).state == "draft"


def test_the_last_administrator_reads_why_they_stay(root: User, client_for: ClientFor) -> None:
    answer = client_for(root).post(f"{PEOPLE}{root.pk}/deactivate/")

    assert answer.status_code == 409
    assert "root is the last administrator" in text(answer)
    assert User.objects.get(pk=root.pk).is_active


def test_a_person_is_edited_with_the_sentences_of_the_service_at_the_fields(
    root: User, alice: User, dev_group: Group, client_for: ClientFor
) -> None:
    client = client_for(root)
    form = {"username": "alice", "first_name": "Alice", "groups": [dev_group.pk]}

    wrong = client.post(f"{PEOPLE}{alice.pk}/edit/", form | {"username": "root"})
    right = client.post(f"{PEOPLE}{alice.pk}/edit/", form)

    assert wrong.status_code == 400
    assert "already exists" in errors_at("username", wrong)
    assert right["Location"] == f"{PEOPLE}{alice.pk}/"
    assert str(User.objects.get(pk=alice.pk)) == "Alice"


def test_a_credential_of_somebody_is_revoked_on_their_page_and_only_theirs(
    root: User, alice: User, bob: User, client_for: ClientFor
) -> None:
    credential, _ = credential_create(user=alice, label="nightly")
    client = client_for(root)

    wrong = client.post(f"{PEOPLE}{bob.pk}/credentials/{credential.pk}/revoke/")
    right = client.post(f"{PEOPLE}{alice.pk}/credentials/{credential.pk}/revoke/")

    assert (wrong.status_code, right.status_code) == (404, 302)
    credential.refresh_from_db()
    assert credential.revoked_at is not None


def test_people_are_found_and_come_into_a_group_many_at_once_and_leave_it(
    example: Example, root: User, bob: User, charlie: User, client_for: ClientFor, submit: Submit
) -> None:
    group = example.dev.group
    submit(bob, "left queued")
    client = client_for(root)
    page = f"{GROUPS}{group.pk}/"
    found = client.get(f"{page}?add=r")
    assert f'name="person" value="{charlie.pk}"' in folded(found.content.decode())

    client.post(f"{page}add/", {"person": [charlie.pk, root.pk]})
    dialog = client.get(f"{page}leave/?person={bob.pk}&person={charlie.pk}")
    client.post(f"{page}leave/", {"person": [bob.pk, charlie.pk]})

    assert "1 waiting task of theirs stays queued" in text(dialog)
    assert "the queues of Dev" in text(dialog)
    assert list(User.objects.filter(groups=group).values_list("username", flat=True)) == ["root"]
    nobody = client.post(f"{page}add/", {"person": ["x", "9" * 30]}, follow=True)
    assert "Select at least one person first." in text(nobody)


def test_a_group_says_what_uses_it_before_it_is_deleted(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    held, admins = example.dev.group, Group.objects.get(name="Admins")
    client.post(f"{GROUPS}new/", {"name": "guests", "description": "For a day."})
    guests = Group.objects.get(name="guests")

    page = text(client.get(f"{GROUPS}{held.pk}/delete/"))
    refused = client.post(f"{GROUPS}{held.pk}/delete/")
    built_in = client.post(f"{GROUPS}{admins.pk}/delete/")
    gone = client.post(f"{GROUPS}{guests.pk}/delete/")

    assert "The group cannot be deleted" in page
    assert "Dev its group" in page
    held_up = text(client.get(f"{GROUPS}{held.pk}/"))
    assert "Dev policy enqueue, view by its policy" in held_up
    assert (refused.status_code, built_in.status_code, gone.status_code) == (409, 409, 302)
    assert set(Group.objects.filter(name__in=["dev", "guests"])) == {held}


def test_a_group_names_its_vaults_before_it_is_deleted(
    root: User, dev_group: Group, client_for: ClientFor
) -> None:
    client = client_for(root)
    vault = vault_create(actor=root, name="team settings", group=dev_group)
    path = f"{GROUPS}{dev_group.pk}/delete/"

    before = text(client.get(path))
    vault_remove(actor=root, vault=vault)
    after = text(client.get(path))

    assert "The group cannot be deleted" in before
    assert "team settings vault" in before
    assert "team settings removed vault" in after
    assert "Delete group" not in after.split("Cancel")[1]


def test_built_in_groups_are_shown_as_such_and_keep_their_names(
    root: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    admins = Group.objects.get(name="Admins")

    client.post(f"{GROUPS}{admins.pk}/edit/", {"name": "Chiefs", "description": "All of it."})

    assert "Admins Built in" in text(client.get(GROUPS))
    assert "What the group itself gives stands above." in text(client.get(f"{GROUPS}{admins.pk}/"))
    assert Group.objects.select_related("info").get(name="Admins").info.description == "All of it."


def test_groups_take_as_many_queries_however_many_there_are(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    with CaptureQueriesContext(connection) as few:
        client.get(GROUPS)
    Group.objects.bulk_create(Group(name=f"g{number:03}") for number in range(250))

    with CaptureQueriesContext(connection) as many:
        page = client.get(GROUPS)

    assert len(many) == len(few)
    assert "Next page" in text(page)


def test_settings_lead_everybody_to_their_own_pages(alice: User, client_for: ClientFor) -> None:
    client = client_for(alice)

    page = client.get(reverse("account"))

    assert page.status_code == 200
    assert "Credentials" in text(page)
    assert words_on(text(page), "People") == []
    assert user_create(username="p", password=None).status == "active"
