"""What the audit log says of providers and of log-ins with them."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.identity.keys import key_pair_new
from apps.accounts.models import IdentityProvider, User
from apps.accounts.services import throttling
from apps.accounts.services.identity import provider_change, provider_draft
from apps.accounts.services.people_changes import person_deactivate
from apps.core.keyring import HIDDEN
from apps.events.models import AuditEntry
from tests.identity.forged_provider import (
    Assertion,
    Forge,
    post_answer,
    request_id_of,
    state_and_nonce_of,
)
from tests.identity.providers import Server
from tests.identity.test_invalid_responses import OTHER, is_in, with_token

pytestmark = pytest.mark.django_db

REFUSED, SIGNED_IN = "session.refused", "session.signed_in"


def come_in(client: Client, row: IdentityProvider, forge: Forge, **claims: Any) -> Any:
    return with_token(
        client, row, forge, lambda forge, nonce: forge.sign(forge.claims(nonce, **claims))
    )


def refusals_of(verb: str) -> list[tuple[str, Any, str]]:
    rows = AuditEntry.objects.filter(verb=verb).order_by("id")
    return [(row.object_name, row.details.get("provider"), row.reason) for row in rows]


def changed() -> AuditEntry:
    return AuditEntry.objects.filter(verb="identity_provider.changed").latest("id")


def test_a_log_in_names_the_provider(
    forged: IdentityProvider, forge: Forge, dana: User, client: Client
) -> None:
    come_in(client, forged, forge)

    assert refusals_of(SIGNED_IN) == [("dana", "Company", "")]
    assert refusals_of(REFUSED) == []


def test_a_password_names_none(dana: User, client: Client) -> None:
    dana.set_password("correct horse battery")
    dana.save()

    client.post("/sign-in/", {"username": "dana", "password": "correct horse battery"})

    assert refusals_of(SIGNED_IN) == [("dana", None, "")]


def test_whoever_is_deactivated_and_refused_is_named(
    forged: IdentityProvider, forge: Forge, dana: User, root: User, client: Client
) -> None:
    come_in(Client(), forged, forge)
    person_deactivate(actor=root, user=dana)

    answer = come_in(client, forged, forge)

    assert answer.status_code == 403
    ((name, provider, reason),) = refusals_of(REFUSED)
    assert (name, provider) == ("dana", "Company")
    assert reason.startswith("This account is deactivated.")


def test_whoever_is_not_here_is_refused_by_no_name(
    forged: IdentityProvider, forge: Forge, client: Client
) -> None:
    come_in(client, forged, forge)

    ((name, provider, reason),) = refusals_of(REFUSED)
    assert (name, provider) == ("no such account", "Company")
    assert reason.startswith("You have no account here yet.")


def test_wrong_tokens_leave_an_entry_each(
    forged: IdentityProvider, forge: Forge, dana: User, client: Client
) -> None:
    with_token(
        client, forged, forge, lambda forge, nonce: forge.sign(forge.claims(nonce), key=OTHER)
    )
    with_token(client, forged, forge, lambda forge, _nonce: forge.sign(forge.claims("another")))
    come_in(client, forged, forge, sub="")

    reasons = [reason for _name, _provider, reason in refusals_of(REFUSED)]
    wants = ["Signature verification failed", "answers another request", "no usable id"]
    assert [want in reason for want, reason in zip(wants, reasons, strict=True)] == [True] * 3
    assert not is_in(client)


def test_wrong_assertions_leave_an_entry_each(
    saml: IdentityProvider, saml_server: Server, dana: User, client: Client
) -> None:
    right = Assertion(saml_server, saml, request_id_of(client, saml), audience="https://x.example")

    post_answer(client, saml, right.signed())

    ((name, provider, reason),) = refusals_of(REFUSED)
    assert (name, provider) == ("no such account", "Company")
    assert "audience" in reason


@pytest.mark.usefixtures("one_long_minute")
def test_an_address_does_not_fill_the_log_with_refusals(
    forged: IdentityProvider, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttling, "_REFUSALS", 5)
    path = reverse("oidc_callback", args=[forged.slug])
    state_and_nonce_of(client, forged)

    for _ in range(12):
        assert client.get(path, {"code": "any", "state": "made up"}).status_code == 403

    assert len(refusals_of(REFUSED)) == 5


def test_another_certificate_of_the_provider_is_audited(
    saml: IdentityProvider, saml_server: Server, root: User
) -> None:
    metadata = saml_server.metadata()
    theirs, ours = saml_server.certificate, key_pair_new("evil")[0]
    other = metadata.replace(bare(theirs), bare(ours))
    assert other != metadata

    provider_change(actor=root, provider=saml, values={"metadata": other})

    entry = changed()
    assert entry.before.keys() == entry.after.keys() == {"metadata_sha256"}
    assert len(entry.after["metadata_sha256"]) == 64


def bare(certificate: str) -> str:
    """As metadata has it: without its first and last line."""
    return "".join(line for line in certificate.splitlines() if "CERTIFICATE" not in line)


def test_where_codes_are_exchanged_is_audited(forged: IdentityProvider, root: User) -> None:
    address = "https://login.example.com/token"

    provider_change(actor=root, provider=forged, values={"token_url": address})

    assert changed().after == {"code_exchange_url": address}


@pytest.mark.parametrize(
    ("tried", "typed", "want"),
    [
        pytest.param("another", HIDDEN, True, id="tried before"),
        pytest.param(None, "another", True, id="typed"),
        pytest.param(None, HIDDEN, False, id="kept"),
        pytest.param(None, "the same", False, id="typed again"),
    ],
)
def test_another_secret_is_audited_however_it_came(
    forged: IdentityProvider, root: User, tried: str | None, typed: str, *, want: bool
) -> None:
    provider_change(actor=root, provider=forged, values={"client_secret": "the same"})
    draft = IdentityProvider.objects.get(pk=forged.pk)
    if tried is not None:
        provider_draft(
            preset=draft.preset, slug=draft.slug, values={"client_secret": tried}, kept=draft
        )

    provider_change(actor=root, provider=forged, values={"client_secret": typed}, begun=draft)

    assert changed().details["has_new_secret"] is want
