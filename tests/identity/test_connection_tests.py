"""A connection test of a provider never becomes a log-in, whatever happened meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.identity import connection_tests
from apps.accounts.models import IdentityProvider, User
from apps.accounts.services.identity import provider_change
from apps.accounts.services.people import user_create
from apps.events.models import AuditEntry
from tests.dashboard.page_reader import text
from tests.identity.conftest import oidc_values
from tests.identity.forged_provider import (
    Assertion,
    Forge,
    post_answer,
    request_id_of,
    state_and_nonce_of,
)
from tests.identity.providers import Server

pytestmark = pytest.mark.django_db

Step = Callable[[Client, str, dict[str, Any]], Any]


@pytest.fixture
def forged(forged: IdentityProvider) -> IdentityProvider:
    forged.creates_people = True
    forged.save()
    return forged


@pytest.fixture
def administrator(root: User) -> Client:
    client = Client()
    client.force_login(root)
    return client


def typed(forge: Forge) -> dict[str, Any]:
    """The form of the provider as it is saved."""
    values = oidc_values(
        Server(0), discovery_url=f"{forge.address}/.well-known/openid-configuration"
    )
    claims = {"claim_id": "sub", "claim_email": "email", "claim_groups": "groups", "mapping": ""}
    checks = {"verifies_signature": "on", "is_active": "on", "creates_people": "on"}
    return {**values, **claims, **checks, "pkce": "S256"}


def send_callback(client: Client, forge: Forge, asked: tuple[str, str]) -> Any:
    state, nonce = asked
    forge.id_token = forge.sign(forge.claims(nonce))
    path = reverse("oidc_callback", args=["forge"])
    return client.get(path, {"code": "any", "state": state})


def save_provider(client: Client, path: str, form: dict[str, Any]) -> Any:
    return client.post(path, form)


def restart_test(client: Client, path: str, form: dict[str, Any]) -> Any:
    return client.post(path, form | {"test": "1"})


def expire_test(client: Client, path: str, form: dict[str, Any]) -> Any:
    session = client.session
    session[connection_tests._RUNNING] = 0
    session.save()


@pytest.mark.parametrize("meanwhile", [save_provider, restart_test, expire_test])
def test_the_answer_for_a_test_that_is_over_lets_nobody_in(
    forged: IdentityProvider, forge: Forge, root: User, administrator: Client, meanwhile: Step
) -> None:
    path = reverse("identity_edit", args=["forge"])
    administrator.post(path, typed(forge) | {"test": "1"})
    asked = state_and_nonce_of(administrator, forged)
    before = User.objects.count()
    meanwhile(administrator, path, typed(forge))

    answer = send_callback(administrator, forge, asked)

    assert answer.status_code == 403
    assert "a test that is over" in text(answer)
    assert AuditEntry.objects.filter(verb="session.refused").count() == 1
    assert administrator.session["_auth_user_id"] == str(root.pk)
    assert User.objects.count() == before


def test_a_log_in_from_before_a_connection_test_ignores_the_tested_settings(
    forged: IdentityProvider, forge: Forge, root: User, administrator: Client
) -> None:
    asked = state_and_nonce_of(administrator, forged)
    before = User.objects.count()
    path = reverse("identity_edit", args=["forge"])
    administrator.post(path, typed(forge) | {"test": "1"})

    refused = send_callback(administrator, forge, asked)
    tested = send_callback(administrator, forge, state_and_nonce_of(administrator, forged))

    assert refused.status_code == 403
    assert tested["Location"] == reverse("identity_test_outcome")
    assert administrator.session["_auth_user_id"] == str(root.pk)
    assert User.objects.count() == before


def test_the_same_holds_for_saml(
    saml: IdentityProvider, saml_server: Server, root: User, administrator: Client
) -> None:
    user_create(username="dana", password=None, email="dana@example.com")
    path = reverse("identity_edit", args=[saml.slug])
    form = {"name": "Company", "claim_id": "NameID", "claim_email": "email", "trusts_email": "on"}
    form |= {"is_active": "on", "requires_signed_assertions": "on", "mapping": ""}
    begun = administrator.post(path, form | {"test": "1"})
    right = Assertion(saml_server, saml, request_id_of(administrator, saml))
    kept = administrator.post(path, form)

    answer = post_answer(administrator, saml, right.signed())

    assert (begun.status_code, kept.status_code) == (302, 302)
    assert answer.status_code == 403
    assert administrator.session["_auth_user_id"] == str(root.pk)


def test_who_saved_a_test_logs_in_with_it_afterwards(
    forged: IdentityProvider, forge: Forge, root: User, administrator: Client
) -> None:
    path = reverse("identity_edit", args=["forge"])
    administrator.post(path, typed(forge) | {"test": "1"})
    administrator.post(path, typed(forge))
    provider_change(actor=root, provider=forged, values={"creates_people": True})

    send_callback(administrator, forge, state_and_nonce_of(administrator, forged))

    assert administrator.session["_auth_user_id"] != str(root.pk)
