"""Tenants in the browser: for administrators the list; for a tenant's what they look after."""

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import Tenant, User
from apps.accounts.services.credentials import credential_create
from apps.accounts.services.groups import group_members_add
from apps.policies.models import Policy, Profile, Queue
from tests.dashboard.conftest import ClientFor
from tests.dashboard.page_reader import errors_at, text
from tests.page_words import words_on
from tests.people import Example
from tests.tenants import RIVAL, Organisations, organisation

pytestmark = pytest.mark.django_db

TENANTS = "/settings/tenants/"


def test_only_administrators_learn_that_there_are_tenants(
    organisations: Organisations, alice: User, quinn: User, root: User, client_for: ClientFor
) -> None:
    one = organisations.acme.tenant.pk
    paths = [TENANTS, f"{TENANTS}new/", f"{TENANTS}{one}/edit/", f"{TENANTS}{one}/delete/"]
    for person in (alice, quinn, organisations.acme.admin, organisations.acme.member):
        client = client_for(person)
        assert [client.get(path).status_code for path in paths] == [404] * 4
        assert [client.post(path).status_code for path in paths[1:]] == [404] * 3
        assert TENANTS not in client.get("/settings/account/").content.decode()
    assert [client_for(root).get(path).status_code for path in paths] == [200] * 4


def test_the_list_has_a_fixed_number_of_queries(
    organisations: Organisations, root: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    with CaptureQueriesContext(
        connection,
    ) as few:
        assert "acme-top" in text(client.get(TENANTS))
    for number in range(5):
        organisation(
            root,
            f"more-{number}",
            member=f"m-{number}",
            admin=f"a-{number}",
            profile=organisations.acme.queue.profile,
        )

    with CaptureQueriesContext(connection) as many:
        client.get(TENANTS)

    assert len(many) == len(few)


def test_a_tenant_is_made_changed_and_removed(
    root: User, example: Example, client_for: ClientFor
) -> None:
    client, heads = client_for(root), Group.objects.create(name="heads")
    given = {"top": example.dev.pk, "admin_group": heads.pk, "groups": []}

    refused = client.post(f"{TENANTS}new/", given)
    client.post(f"{TENANTS}new/", {**given, "groups": [example.dev.group_id]})
    made = Tenant.objects.get()
    research = example.research.group_id
    change = {"admin_group": heads.pk, "groups": [example.dev.group_id, heads.pk, research]}
    client.post(f"{TENANTS}{made.pk}/edit/", change)

    assert refused.status_code == 400
    assert "Add dev, the group of policy Dev" in text(refused)
    assert made.belonging.count() == 3
    client.post(f"{TENANTS}{made.pk}/delete/")
    assert not Tenant.objects.exists()
    assert Policy.objects.get(pk=example.dev.pk).tenant_id is None


def test_an_administrator_of_a_tenant_finds_their_way(
    organisations: Organisations, client_for: ClientFor
) -> None:
    acme, client = organisations.acme, client_for(organisations.acme.admin)

    home = client.get("/").content.decode()
    listed = client.get("/policies/").content.decode()
    team = client.get(f"/policies/{acme.team.pk}/").content.decode()
    top = client.get(f"/policies/{acme.top.pk}/").content.decode()

    assert "/settings/people/" in home
    assert not any(path in home for path in ("/admin/", "/nodes/", "/settings/identity/"))
    assert "/policies/new/" in listed
    assert f"/policies/{acme.team.pk}/edit/" in team
    assert "/edit/" not in top
    assert client.get(f"/policies/{acme.top.pk}/edit/").status_code == 404


def test_they_make_a_policy_and_connect_a_profile(
    organisations: Organisations, client_for: ClientFor
) -> None:
    acme, client = organisations.acme, client_for(organisations.acme.admin)
    given = {"name": "acme-new", "group": acme.group.pk, "weight": 1, "description": ""}

    orphan = client.post("/policies/new/", {**given, "save": "1"})
    large = {**given, "parent": acme.top.pk, "reserved.gpu": "3", "save": "1"}
    beyond = client.post("/policies/new/", large)
    client.post("/policies/new/", {**large, "reserved.gpu": "2"})
    made = Policy.objects.get(name="acme-new")
    profile = acme.queue.profile
    client.post(f"/policies/{made.pk}/connect/", {"profile": profile.pk, "name": "acme-new-queue"})

    assert errors_at("parent", orphan)
    assert "acme-top, which has 4 reserved" in errors_at("reserved.gpu", beyond)
    assert made.tenant_id == acme.tenant.pk
    assert Queue.objects.get(name="acme-new-queue").policy_id == made.pk


def test_forms_offer_what_is_the_tenants(
    organisations: Organisations, client_for: ClientFor
) -> None:
    client = client_for(organisations.acme.admin)
    paths = ["/policies/new/", "/settings/people/invite/", "/settings/vaults/new/"]

    for path in paths:
        shown = client.get(path).content.decode()
        assert "acme-team-group" in shown
        assert words_on(shown, "research", "Queue admins") == []


def test_settings_that_bear_upon_others_are_not_on_the_form(
    organisations: Organisations, root: User, client_for: ClientFor
) -> None:
    path = f"/queues/{organisations.acme.queue.pk}/settings/"

    assert "max_priority" in client_for(root).get(path).content.decode()
    shown = client_for(organisations.acme.admin).get(path)
    assert shown.status_code == 200
    assert "max_waiting" in shown.content.decode()
    assert "max_priority" not in shown.content.decode()


def test_they_invite_into_their_groups_and_nowhere_else(
    organisations: Organisations, dev_group: Group, client_for: ClientFor
) -> None:
    acme, client = organisations.acme, client_for(organisations.acme.admin)
    path = "/settings/people/invite/"

    nowhere = client.post(path, {"username": "new", "days": 7})
    foreign = client.post(path, {"username": "new", "days": 7, "groups": [dev_group.pk]})
    client.post(path, {"username": "new", "days": 7, "groups": [acme.group.pk]})

    assert (nowhere.status_code, foreign.status_code) == (400, 400)
    assert set(User.objects.get(username="new").groups.values_list("name", flat=True)) == {
        "Users",
        "acme-team-group",
    }


def test_a_new_group_is_the_tenants_and_takes_its_people_only(
    organisations: Organisations, client_for: ClientFor
) -> None:
    acme, client = organisations.acme, client_for(organisations.acme.admin)
    client.post("/settings/people/groups/new/", {"name": "acme-new-group", "description": ""})
    made = Group.objects.get(name="acme-new-group")
    path = f"/settings/people/groups/{made.pk}/"

    found = client.get(f"{path}?add=a").content.decode()
    people = [acme.member.pk, organisations.rival.member.pk]
    client.post(f"{path}add/", {"person": people})

    assert made.belongs.tenant_id == acme.tenant.pk
    assert f'value="{acme.member.pk}"' in found
    assert RIVAL not in found
    assert list(User.objects.filter(groups=made)) == [acme.member]


def test_who_has_other_groups_is_seen_and_not_changed(
    organisations: Organisations, root: User, dev_group: Group, client_for: ClientFor
) -> None:
    acme, client = organisations.acme, client_for(organisations.acme.admin)
    group_members_add(actor=root, group=dev_group, users=[acme.member])
    path = f"/settings/people/{acme.member.pk}/"
    credential, _secret = credential_create(user=acme.member, label="elsewhere")

    shown = client.get(path)

    assert shown.status_code == 200
    assert credential.key not in shown.content.decode()
    assert text(client.get(f"/settings/people/?group={dev_group.pk}")).count("Nobody matches") == 1
    assert "edit/" not in shown.content.decode()
    assert "dev" not in text(shown).split()
    for verb in ("edit/", "deactivate/", "activate/", "invitation/", "waiting/"):
        assert client.post(f"{path}{verb}").status_code == 404
    assert User.objects.get(pk=acme.member.pk).is_active


def test_they_deactivate_who_is_theirs_alone(
    organisations: Organisations, client_for: ClientFor
) -> None:
    acme, client = organisations.acme, client_for(organisations.acme.admin)

    client.post(f"/settings/people/{acme.member.pk}/deactivate/", {"waiting": "take_out"})

    assert not User.objects.get(pk=acme.member.pk).is_active
    assert f"/settings/people/{acme.member.pk}/" in client.get("/settings/people/").content.decode()


def test_the_connect_page_offers_no_profile_with_privileges_of_others(
    organisations: Organisations, client_for: ClientFor
) -> None:
    client, team = client_for(organisations.acme.admin), organisations.acme.team
    Profile.objects.filter(name="8xGPU").update(extra_permissions=["root"])
    special, plain = (Profile.objects.get(name=name) for name in ("8xGPU", "4xGPU"))
    path = f"/policies/{team.pk}/"

    offered = text(client.get(f"{path}connect/"))
    names = [client.get(f"{path}queue-name/?profile={one.pk}") for one in (special, plain)]

    assert "4xGPU" in offered
    assert words_on(offered, "8xGPU") == []
    assert [answer.status_code for answer in names] == [404, 200]
    refused = client.post(f"{path}connect/", {"profile": special.pk, "name": "new"})
    assert refused.status_code == 400
    assert words_on(text(client.get("/resources/")), "8xGPU") == []


def test_who_would_be_in_none_of_the_tenants_groups_is_not_saved(
    organisations: Organisations, client_for: ClientFor
) -> None:
    acme, client = organisations.acme, client_for(organisations.acme.admin)
    path = f"/settings/people/{acme.member.pk}/edit/"

    answer = client.post(path, {"username": "ada", "groups": []})

    assert answer.status_code == 400
    assert "one of your groups at least" in text(answer)
    assert acme.member.groups.filter(pk=acme.group.pk).exists()


def test_the_top_is_not_offered_to_be_restricted(
    organisations: Organisations, root: User, client_for: ClientFor
) -> None:
    acme = organisations.acme
    top, team = (f"/policies/{one.pk}/restrict/" for one in (acme.top, acme.team))

    shown = [client_for(one).get("/settings/access/") for one in (acme.admin, root)]
    named = [[path in page.content.decode() for path in (top, team)] for page in shown]

    assert named == [[False, True], [True, True]]
    assert client_for(acme.admin).get(top).status_code == 404
    assert client_for(acme.admin).get(team).status_code == 200
