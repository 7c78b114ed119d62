"""Requests that anybody may send: they cost little, are kept for minutes, and are counted."""

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as site
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from apps.accounts.models import IdentityProvider, User
from apps.dashboard.views.provider_sign_in import MOST_ANSWER
from tests.identity.forged_provider import (
    Assertion,
    Forge,
    post_answer,
    provider_redirect_of,
    request_id_of,
    state_and_nonce_of,
)
from tests.identity.providers import Server

pytestmark = pytest.mark.django_db

LASTS = timedelta(seconds=601)
HERE, ELSEWHERE = "198.51.100.7", "203.0.113.9"


@pytest.fixture
def few(settings: Settings, one_long_minute: None) -> None:
    """Three steps, in a minute that does not end."""
    settings.RPM_PROVIDER_STEPS_PER_ADDRESS = 3


def test_only_what_the_provider_signed_is_kept_and_not_for_long(
    saml: IdentityProvider, saml_server: Server, dana: User, client: Client
) -> None:
    right = Assertion(saml_server, saml, request_id_of(client, saml)).signed()
    before = set(Session.objects.values_list("pk", flat=True))
    large = {"RelayState": "x" * 1_000_000}
    path = reverse("saml_acs", args=[saml.slug])

    junk = Client().post(path, large | {"SAMLResponse": "junk"})
    nothing = Client().post(path, large)
    after_junk = set(Session.objects.values_list("pk", flat=True))
    kept = client.post(path, large | {"SAMLResponse": right}, headers={"x-long": "y" * 2000})

    assert (junk.status_code, nothing.status_code, kept.status_code) == (403, 403, 302)
    assert after_junk == before
    (row,) = Session.objects.exclude(pk__in=before)
    assert len(row.session_data) < MOST_ANSWER
    assert len(row.session_data) < 2 * len(right)
    assert row.expire_date < timezone.now() + LASTS
    client.get(kept["Location"])
    assert client.session["_auth_user_id"] == str(dana.pk)


def test_who_only_begins_a_log_in_leaves_no_session_for_weeks(
    forged: IdentityProvider, forge: Forge, dana: User, client: Client
) -> None:
    state, nonce = state_and_nonce_of(client, forged)
    begun = Session.objects.get().expire_date
    forge.id_token = forge.sign(forge.claims(nonce))

    done = client.get(reverse("oidc_callback", args=["forge"]), {"code": "x", "state": state})

    assert begun < timezone.now() + LASTS
    assert client.session["_auth_user_id"] == str(dana.pk)
    assert client.session.get_expiry_age() == site.SESSION_COOKIE_AGE
    assert done.cookies["sessionid"]["max-age"] == site.SESSION_COOKIE_AGE


def test_the_provider_is_not_asked_for_its_addresses_each_time(
    forged: IdentityProvider, forge: Forge, root: User
) -> None:
    forge.asked.clear()

    for _ in range(5):
        provider_redirect_of(Client(), forged)

    assert forge.asked == ["/.well-known/openid-configuration"]


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("provider_start", "get"),
        ("oidc_callback", "get"),
        ("saml_acs", "post"),
        ("saml_finish_acs", "get"),
    ],
)
def test_a_burst_from_one_address_waits_and_others_do_not(
    few: None, saml: IdentityProvider, name: str, method: str
) -> None:
    def asked(address: str) -> Any:
        return getattr(Client(REMOTE_ADDR=address), method)(reverse(name, args=[saml.slug]))

    answers = [asked(HERE) for _ in range(5)]

    assert 429 not in {one.status_code for one in answers[:3]}
    assert {one.status_code for one in answers[3:]} == {429}
    assert int(answers[-1]["Retry-After"]) > 0
    assert "Too many log-ins from this address" in answers[-1].content.decode()
    assert asked(ELSEWHERE).status_code != 429


def test_hundreds_behind_one_address_come_in(
    saml: IdentityProvider, saml_server: Server, dana: User
) -> None:
    for number in range(200):
        answer = Client(REMOTE_ADDR=HERE).get(reverse("provider_start", args=[saml.slug]))
        assert answer.status_code == 302, number
    client = Client(REMOTE_ADDR=HERE)

    post_answer(client, saml, Assertion(saml_server, saml, request_id_of(client, saml)).signed())

    assert client.session["_auth_user_id"] == str(dana.pk)
