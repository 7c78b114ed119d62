"""Log-ins with a real OpenID Connect provider: who can sign in, who cannot, and why."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from apps.accounts.models import ADMINS, IdentityProvider, User
from apps.accounts.services.identity import mapping_set, provider_change
from apps.accounts.services.people import user_create
from apps.accounts.services.people_changes import person_change
from apps.accounts.services.profile import profile_change
from tests.dashboard.page_reader import text
from tests.identity.conftest import at_oidc, oidc_values, path_of
from tests.identity.forged_provider import provider_redirect_of
from tests.identity.providers import Server, running_oidc

pytestmark = pytest.mark.django_db


@pytest.fixture
def dana(db: None) -> User:
    return user_create(username="dana", password=None, email="dana@example.com")


def come_in(client: Client, row: IdentityProvider, *, next_url: str = "") -> Any:
    """The whole way there and back."""
    return client.get(path_of(at_oidc(provider_redirect_of(client, row, next_url=next_url))))


def who(client: Client) -> int | None:
    """Who is signed in."""
    found = client.session.get("_auth_user_id")
    return int(found) if found is not None else None


def test_an_invited_person_is_known_by_a_verified_address(
    oidc: IdentityProvider, oidc_server: Server, dana: User, client: Client
) -> None:
    oidc_server.person("u-1", email="Dana@example.com", email_verified=True)

    answer = come_in(client, oidc, next_url="/tasks/")

    assert answer["Location"] == "/tasks/"
    assert who(client) == dana.pk


def test_from_then_on_the_id_counts_and_no_address(
    oidc: IdentityProvider, oidc_server: Server, dana: User, client: Client
) -> None:
    oidc_server.person("u-1", email="dana@example.com", email_verified=True)
    come_in(Client(), oidc)
    oidc_server.person("u-1", email="other@example.com", email_verified=False)

    come_in(client, oidc)

    assert who(client) == dana.pk


def test_an_address_that_somebody_gave_themselves_attracts_nobody(
    oidc: IdentityProvider, oidc_server: Server, root: User, alice: User, client: Client
) -> None:
    alice.set_password("correct-horse-battery")
    alice.save()
    profile_change(
        user=alice, changes={"email": "victim@example.com"}, password="correct-horse-battery"
    )
    oidc_server.person("u-victim", email="victim@example.com", email_verified=True)

    answer = come_in(client, oidc)

    assert answer.status_code == 403
    assert "nobody confirmed that it is yours" in text(answer)
    assert who(client) is None

    person_change(actor=root, user=alice, changes={"email": "victim@example.com"})
    come_in(client, oidc)

    assert who(client) == alice.pk


def test_an_address_that_is_not_verified_takes_over_nobody(
    oidc: IdentityProvider, oidc_server: Server, root: User, dana: User, client: Client
) -> None:
    loose = {"requires_verified_email": False, "creates_people": True}
    for values in ({}, loose):
        provider_change(actor=root, provider=oidc, values=values)
        oidc_server.person("u-evil", email="dana@example.com", email_verified=False)

        answer = come_in(client, oidc)

        assert answer.status_code == 403
        assert who(client) is None
    assert "does not say that it is yours" in text(answer)
    assert User.objects.filter(email="dana@example.com").count() == 1


def test_who_is_not_here_is_refused_with_whom_to_ask(
    oidc: IdentityProvider, oidc_server: Server, client: Client
) -> None:
    oidc_server.person("u-2", email="new@example.com", email_verified=True)

    answer = come_in(client, oidc)

    assert answer.status_code == 403
    assert "Ask an administrator to invite you as new@example.com." in text(answer)
    assert not User.objects.filter(email="new@example.com").exists()


def test_a_provider_may_create_people_with_a_name_that_is_free(
    oidc: IdentityProvider, oidc_server: Server, root: User, dana: User, client: Client
) -> None:
    provider_change(actor=root, provider=oidc, values={"creates_people": True})
    oidc_server.person(
        "u-3",
        email="dana@elsewhere.example",
        email_verified=True,
        given_name="Dana",
        family_name="Other",
        preferred_username="Dana",
    )

    come_in(client, oidc)

    made = User.objects.get(pk=who(client) or 0)
    assert (made.username, str(made), made.has_usable_password()) == (
        "Dana-2",
        "Dana Other",
        False,
    )
    assert [group.name for group in made.groups.all()] == ["Users"]


def test_a_deactivated_person_reads_so(
    oidc: IdentityProvider, oidc_server: Server, dana: User, client: Client
) -> None:
    User.objects.filter(pk=dana.pk).update(is_active=False)
    oidc_server.person("u-1", email="dana@example.com", email_verified=True)

    answer = come_in(client, oidc)

    assert answer.status_code == 403
    assert "This account is deactivated." in text(answer)


def test_a_service_account_is_nobody_who_could_log_in(
    oidc: IdentityProvider, oidc_server: Server, dana: User, client: Client
) -> None:
    User.objects.filter(pk=dana.pk).update(is_service=True)
    oidc_server.person("u-1", email="dana@example.com", email_verified=True)

    assert come_in(client, oidc).status_code == 403
    assert who(client) is None


def test_groups_are_joined_and_left_as_the_provider_says(
    oidc: IdentityProvider,
    oidc_server: Server,
    root: User,
    dana: User,
    dev_group: Group,
    research_group: Group,
) -> None:
    by_hand = Group.objects.create(name="by hand")
    dana.groups.add(by_hand, research_group)
    provider_change(actor=root, provider=oidc, values={"syncs_groups": True})
    mapping_set(oidc, [("ml-platform", dev_group), ("science", research_group)])
    known = {"email": "dana@example.com", "email_verified": True}

    oidc_server.person("u-1", groups=["ml-platform", "unheard of"], **known)
    come_in(Client(), oidc)
    first = set(dana.groups.values_list("name", flat=True))
    oidc_server.person("u-1", **known)
    come_in(Client(), oidc)

    assert first == {"Users", "by hand", "dev"}
    assert set(dana.groups.values_list("name", flat=True)) == {"Users", "by hand"}


def test_the_last_administrator_stays_one(
    oidc: IdentityProvider, oidc_server: Server, root: User
) -> None:
    User.objects.filter(pk=root.pk).update(email="root@example.com")
    provider_change(actor=root, provider=oidc, values={"syncs_groups": True})
    mapping_set(oidc, [("bosses", Group.objects.get(name=ADMINS))])
    oidc_server.person("u-0", email="root@example.com", email_verified=True, groups=[])

    come_in(Client(), oidc)
    kept = root.groups.filter(name=ADMINS).exists()
    user_create(username="second", password=None, groups=[ADMINS])
    come_in(Client(), oidc)

    assert kept
    assert not root.groups.filter(name=ADMINS).exists()


def test_an_answer_to_another_browser_lets_nobody_in(
    oidc: IdentityProvider, oidc_server: Server, dana: User, client: Client
) -> None:
    oidc_server.person("u-1", email="dana@example.com", email_verified=True)
    back = path_of(at_oidc(provider_redirect_of(Client(), oidc)))

    answer = client.get(back)

    assert answer.status_code == 403
    assert who(client) is None


def test_an_answer_counts_once(
    oidc: IdentityProvider, oidc_server: Server, dana: User, client: Client
) -> None:
    oidc_server.person("u-1", email="dana@example.com", email_verified=True)
    back = path_of(at_oidc(provider_redirect_of(client, oidc)))
    client.get(back)
    client.post(reverse("sign_out"))

    assert client.get(back).status_code == 403
    assert who(client) is None


def test_a_provider_that_is_switched_off_does_not_exist(
    oidc: IdentityProvider, root: User, client: Client
) -> None:
    provider_change(actor=root, provider=oidc, values={"is_active": False})

    assert client.get(reverse("provider_start", args=[oidc.slug])).status_code == 404
    assert oidc.name not in client.get(reverse("sign_in")).content.decode()


def test_only_our_own_pages_begin_a_log_in(oidc: IdentityProvider, client: Client) -> None:
    path = reverse("provider_start", args=[oidc.slug])

    answer = client.get(path, headers={"sec-fetch-site": "cross-site"})

    assert answer["Location"] == reverse("sign_in")


def test_a_log_in_leads_to_pages_of_ours_only(
    oidc: IdentityProvider, oidc_server: Server, dana: User, client: Client
) -> None:
    oidc_server.person("u-1", email="dana@example.com", email_verified=True)

    answer = come_in(client, oidc, next_url="https://evil.example/")

    assert answer["Location"] == "/"


def test_other_kinds_of_clients_work_as_well(
    loopback: None, oidc: IdentityProvider, root: User, dana: User, client: Client
) -> None:
    callback = f"http://testserver/sign-in/with/{oidc.slug}/callback/"
    changes = {"pkce": "none", "uses_user_info": True, "verifies_signature": False}
    with running_oidc(callback, pkce=False, method="basic") as server:
        server.person("u-1", email="dana@example.com", email_verified=True)
        provider_change(actor=root, provider=oidc, values=oidc_values(server, **changes))

        come_in(client, oidc)

    assert who(client) == dana.pk


def test_a_plain_challenge_is_the_verifier_itself(
    oidc: IdentityProvider, root: User, client: Client
) -> None:
    provider_change(actor=root, provider=oidc, values={"pkce": "plain"})

    query = parse_qs(urlsplit(provider_redirect_of(client, oidc)).query)

    kept = client.session["socialaccount_states"][query["state"][0]][0]
    assert query["code_challenge_method"] == ["plain"]
    assert query["code_challenge"] == [kept["pkce_code_verifier"]]
