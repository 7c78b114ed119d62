"""Accounts on the admin site: people go through their services, service accounts are looked at."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from apps.accounts.models import Credential, User
from apps.accounts.selectors import administrators_left
from apps.accounts.services.credentials import credential_create
from apps.accounts.services.groups import user_groups_set
from apps.accounts.services.service_accounts import (
    service_account_create,
    service_account_remove,
)
from apps.core.errors import Conflict
from apps.events.models import AuditEntry, Event
from tests.configuration.site import form_of, url

pytestmark = pytest.mark.django_db


@pytest.fixture
def bot(root: User) -> User:
    return service_account_create(actor=root, name="bot").account


def save(site: Client, user: User, **values: Any) -> Any:
    address = url(User, "change", user.pk)
    return site.post(address, form_of(site, address) | values)


def test_nobody_becomes_a_service_account_here(site: Client, root: User) -> None:
    answer = save(site, root, is_service="on")

    assert answer.status_code == 302
    root.refresh_from_db()
    assert not root.is_service
    assert administrators_left()


def test_without_an_administrator_no_groups_are_set(root: User) -> None:
    User.objects.filter(pk=root.pk).update(is_service=True)

    with pytest.raises(Conflict):
        user_groups_set(actor=None, user=root, groups=list(root.groups.all()))


def test_who_is_deactivated_here_comes_in_by_nothing(site: Client, alice: User) -> None:
    credential_create(user=alice, label="laptop")
    nonce = alice.session_nonce

    save(site, alice, is_active="", is_service="on")

    alice.refresh_from_db()
    assert (alice.is_active, alice.is_service) == (False, False)
    assert alice.session_nonce != nonce
    assert not Credential.objects.filter(user=alice, revoked_at=None).exists()
    assert Event.objects.filter(kind="person.deactivated").exists()


def test_the_last_administrator_stays_active_here(site: Client, root: User) -> None:
    save(site, root, is_active="")

    root.refresh_from_db()
    assert root.is_active


def test_a_service_account_is_looked_at_here_and_changed_on_its_page(
    site: Client, bot: User
) -> None:
    address = url(User, "change", bot.pk)

    shown = site.get(address)
    sent = site.post(address, {"username": "bot", "groups": []})

    assert 'name="_save"' not in shown.text
    assert bot.password not in shown.text
    assert reverse("service_account", args=[bot.pk]) in shown.text
    assert sent.status_code == 403
    bot.refresh_from_db()
    assert bot.is_active


def test_a_service_account_that_acts_for_others_breaks_no_form(site: Client, bot: User) -> None:
    User.objects.filter(pk=bot.pk).update(can_act_for_owners=True)

    answer = site.post(url(User, "change", bot.pk), {"username": "bot", "is_active": "on"})

    assert answer.status_code == 403


def test_a_deleted_service_account_is_found_nowhere(
    site: Client, root: User, bot: User, dev_group: Group
) -> None:
    service_account_remove(actor=root, account=bot)
    offered = site.get(url(Group, "change", dev_group.pk)).context["adminform"].form

    assert "bot.removed" not in site.get(url(User, "changelist")).text
    assert site.get(url(User, "change", bot.pk))["Location"] == reverse("admin:index")
    assert bot not in offered.fields["members"].queryset


def test_a_person_leads_to_their_page(site: Client, alice: User) -> None:
    shown = site.get(url(User, "change", alice.pk)).text

    assert reverse("person_detail", args=[alice.pk]) in shown


def test_a_person_is_made_with_a_trace(site: Client) -> None:
    values = {"username": "dora", "email": "dora@example.org"}
    site.post(url(User, "add"), {**values, "password1": "horse-9-tea", "password2": "horse-9-tea"})

    dora = User.objects.get(username="dora")
    assert dora.check_password("horse-9-tea")
    assert AuditEntry.objects.get(verb="person.made").object_id == str(dora.pk)


def test_all_of_a_person_is_saved_and_audited(
    site: Client, alice: User, research_group: Group
) -> None:
    wanted = {"first_name": "Ada", "time_zone": "Europe/Berlin", "unix_uid": "1234"}

    answer = save(site, alice, **wanted, groups=[research_group.pk])

    assert answer.status_code == 302
    alice.refresh_from_db()
    assert (alice.first_name, alice.time_zone, alice.unix_uid) == ("Ada", "Europe/Berlin", 1234)
    assert sorted(group.name for group in alice.groups.all()) == ["Users", "research"]
    entries = AuditEntry.objects.filter(verb="person.changed").order_by("pk")
    changes = [entry.after for entry in entries]
    assert changes == [{"first_name": "Ada"}, {"time_zone": "Europe/Berlin", "unix_uid": 1234}]


def test_passwords_are_set_on_pages_that_tell_of_it(site: Client, root: User, alice: User) -> None:
    own, others = reverse("admin:password_change"), f"/admin/accounts/user/{alice.pk}/password/"
    words = {"old_password": "", "password1": "horse-9-tea", "password2": "horse-9-tea"}
    words |= {"new_password1": "horse-9-tea", "new_password2": "horse-9-tea"}

    for address in (own, reverse("admin:password_change_done")):
        for answer in (site.get(address), site.post(address, words)):
            assert (answer.status_code, answer["Location"]) == (302, reverse("account"))
    site.get(others, follow=True)
    site.post(others, words, follow=True)

    for person in (root, alice):
        before = person.password
        person.refresh_from_db()
        assert person.password == before


def test_an_address_that_somebody_has_is_refused_at_its_field(
    site: Client, alice: User, bob: User
) -> None:
    User.objects.filter(pk=bob.pk).update(email="bob@example.org")
    new = {"username": "dora", "password1": "horse-9-tea", "password2": "horse-9-tea"}

    changed = save(site, alice, email="BOB@example.org")
    made = site.post(url(User, "add"), {**new, "email": "Bob@example.org"})

    for answer in (changed, made):
        errors = answer.context["adminform"].form.errors
        assert errors["email"] == ["Another account has this address: use another."]
    assert User.objects.filter(email__iexact="bob@example.org").get() == bob


def test_a_time_zone_that_there_is_not_is_refused_at_its_field(site: Client, alice: User) -> None:
    answer = save(site, alice, time_zone="Nowhere/Land")

    assert "There is no such time zone" in answer.context["adminform"].form.errors["time_zone"][0]


def test_an_address_is_confirmed_by_saving_it(site: Client, alice: User) -> None:
    User.objects.filter(pk=alice.pk).update(email="a@example.org", is_email_unverified=True)

    save(site, alice)

    alice.refresh_from_db()
    assert not alice.is_email_unverified
