"""Providers that are unavailable, or answer unexpectedly: a sentence, never a fault."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from allauth.mfa.totp.internal.auth import (
    TOTP,
    format_hotp_value,
    generate_totp_secret,
    hotp_value,
    yield_hotp_counters_from_time,
)
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from apps.accounts.models import IdentityProvider, User
from apps.accounts.services.identity import provider_change, provider_create
from apps.core.keyring import reseal
from tests.dashboard.page_reader import text
from tests.identity.conftest import oidc_values
from tests.identity.forged_provider import (
    Forge,
    post_answer,
    request_id_of,
    running_forge,
    state_and_nonce_of,
)
from tests.identity.providers import Server
from tests.page_words import words_on

pytestmark = pytest.mark.django_db

DISCOVERY = "/.well-known/openid-configuration"
JSON = "application/json"
OUTCOME = "/settings/identity/test/outcome/"
Instead = dict[str, tuple[int, bytes, str]]
SEALED = (
    '<samlp:Response xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol" '
    'xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" '
    'xmlns:xenc="http://www.w3.org/2001/04/xmlenc#" '
    'xmlns:ds="http://www.w3.org/2000/09/xmldsig#" ID="_r" Version="2.0" InResponseTo="{wanted}">'
    "<saml:EncryptedAssertion>{inner}</saml:EncryptedAssertion></samlp:Response>"
)
# For a key of another user; the rest is never checked.
ENCRYPTED = (
    '<xenc:EncryptedData Type="http://www.w3.org/2001/04/xmlenc#Element"><xenc:EncryptionMethod '
    'Algorithm="http://www.w3.org/2001/04/xmlenc#aes128-cbc"/><ds:KeyInfo><xenc:EncryptedKey>'
    '<xenc:EncryptionMethod Algorithm="http://www.w3.org/2001/04/xmlenc#rsa-oaep-mgf1p"/>'
    f"<xenc:CipherData><xenc:CipherValue>{'A' * 512}</xenc:CipherValue></xenc:CipherData>"
    f"</xenc:EncryptedKey></ds:KeyInfo><xenc:CipherData><xenc:CipherValue>{'A' * 64}"
    "</xenc:CipherValue></xenc:CipherData></xenc:EncryptedData>"
)


@pytest.fixture(scope="module")
def running() -> Iterator[Forge]:
    with running_forge() as made:
        yield made


@pytest.fixture
def forge(running: Forge) -> Iterator[Forge]:
    cache.clear()
    yield running
    running.instead, running.token, running.kind = {}, {}, JSON


@pytest.fixture
def administrator(root: User) -> Client:
    client = Client()
    client.force_login(root)
    return client


def begun_test(client: Client, row: IdentityProvider, forge: Forge) -> None:
    """The administrator asks for a test of the provider as it is saved."""
    typed = oidc_values(Server(0), discovery_url=f"{forge.address}{DISCOVERY}", test="1")
    claims = {"claim_id": "sub", "claim_email": "email", "claim_groups": "groups"}
    checks = {"verifies_signature": "on", "uses_user_info": "on", "is_active": "on"}
    form = {"pkce": "S256", "mapping": "", **typed, **claims, **checks}
    answer = client.post(reverse("identity_edit", args=[row.slug]), form)
    assert answer.status_code == 302, text(answer)


def come_back(
    client: Client, row: IdentityProvider, forge: Forge, instead: Instead, **claims: Any
) -> Any:
    """Return from the provider with a token of these claims, with these answers replaced."""
    state, nonce = state_and_nonce_of(client, row)
    forge.id_token = forge.sign(forge.claims(nonce, **claims))
    forge.user_info = {"sub": claims.get("sub", "u-9")}
    forge.instead.update(instead)
    cache.clear()
    path = reverse("oidc_callback", args=[row.slug])
    return client.get(path, {"code": "any", "state": state}, follow=True)


AWAY: list[Any] = [
    pytest.param({DISCOVERY: (503, b"", "")}, "503 Server Error", id="discovery fails"),
    pytest.param({DISCOVERY: (200, b"<p>", "text/html")}, "no JSON object", id="no discovery"),
    pytest.param(
        {DISCOVERY: (200, b'{"issuer": "https://evil.example"}', JSON)},
        "belongs to the issuer",
        id="another issuer",
    ),
    pytest.param({"/token": (500, b"", "")}, "500 and no JSON", id="no type and no body"),
    pytest.param({"/token": (200, b"[" * 90_000, JSON)}, "no JSON object", id="too deep"),
    pytest.param({"/token": (200, b'["access_token"]', JSON)}, "no JSON object", id="a list"),
    pytest.param({"/token": (200, b'{"access_token": 7}', JSON)}, "no access token", id="a number"),
    pytest.param(
        {"/token": (400, b'{"error": "\\ud800"}', JSON)}, "no access token: ?", id="half a sign"
    ),
    pytest.param({"/userinfo": (200, b"1" * 5000, JSON)}, "no JSON object", id="a huge number"),
    pytest.param({"/jwks": (200, b'{"keys": [7]}', JSON)}, "not accepted", id="keys of nothing"),
]


@pytest.mark.parametrize(("instead", "want"), AWAY)
@pytest.mark.parametrize("is_test", [False, True], ids=["log-in", "test"])
def test_a_provider_that_answers_otherwise_than_it_should_lets_nobody_in(
    forged: IdentityProvider,
    forge: Forge,
    root: User,
    dana: User,
    administrator: Client,
    instead: Instead,
    want: str,
    is_test: bool,
) -> None:
    client = administrator if is_test else Client()
    provider_change(actor=root, provider=forged, values={"uses_user_info": True})
    if is_test:
        begun_test(client, forged, forge)

    answer = come_back(client, forged, forge, instead)

    assert answer.status_code == (200 if is_test else 403)
    assert [path for path, _status in answer.redirect_chain] == [OUTCOME] * is_test
    assert want in text(answer)
    assert client.session.get("_auth_user_id") == (str(root.pk) if is_test else None)


@pytest.mark.parametrize("ends", ["soon", 10**30, None, -1], ids=str)
def test_when_an_access_token_ends_is_of_no_matter(
    forged: IdentityProvider, forge: Forge, dana: User, client: Client, ends: Any
) -> None:
    forge.token = {"expires_in": ends}

    come_back(client, forged, forge, {})

    assert client.session["_auth_user_id"] == str(dana.pk)


def test_a_provider_that_forgets_to_say_that_it_speaks_json_lets_in(
    forged: IdentityProvider, forge: Forge, dana: User, client: Client
) -> None:
    forge.kind = ""

    come_back(client, forged, forge, {})

    assert client.session["_auth_user_id"] == str(dana.pk)


def test_a_discovery_document_may_hold_more_than_the_standard_has(
    forged: IdentityProvider, forge: Forge, dana: User, client: Client
) -> None:
    odd = {"token_endpoint_auth_methods_supported": None, "revocation_endpoint": [1]}
    body = json.dumps(forge.answer(DISCOVERY) | odd).encode()

    come_back(client, forged, forge, {DISCOVERY: (200, body, JSON)})

    assert client.session["_auth_user_id"] == str(dana.pk)


@pytest.mark.parametrize("sub", ["u\ud800", "u\0", "\0"], ids=ascii)
def test_an_id_that_no_database_holds_is_none(
    forged: IdentityProvider, forge: Forge, dana: User, administrator: Client, sub: str
) -> None:
    """Without such characters it could be the id of another user."""
    client = Client()
    refused = come_back(client, forged, forge, {}, sub=sub)
    begun_test(administrator, forged, forge)
    tried = come_back(administrator, forged, forge, {}, sub=sub, name="\udfff")

    assert refused.status_code == 403
    assert "_auth_user_id" not in client.session
    for answer in (refused, tried):
        assert "sent no usable id" in text(answer)


def test_names_that_no_database_holds_are_left_out(
    forged: IdentityProvider, forge: Forge, root: User, client: Client
) -> None:
    provider_change(actor=root, provider=forged, values={"creates_people": True})

    come_back(client, forged, forge, {}, given_name="Da\ud800", family_name="Lee\0")

    made = User.objects.get(pk=client.session["_auth_user_id"])
    assert (made.first_name, made.last_name) == ("", "")


def test_of_what_the_token_endpoint_answers_only_its_error_is_shown(
    forged: IdentityProvider, forge: Forge, administrator: Client
) -> None:
    body = {"error": "bad", "error_description": "because " * 100, "id_token": "marker"}
    wrong = {"/token": (400, json.dumps(body).encode(), JSON)}
    refused = come_back(Client(), forged, forge, wrong)
    begun_test(administrator, forged, forge)
    tried = come_back(administrator, forged, forge, wrong)

    assert refused.status_code == 403
    for answer in (refused, tried):
        assert "gave no access token: bad: because because" in text(answer)
        assert text(answer).count("because") < 50
        assert words_on(text(answer), "marker") == []


def test_protocols_are_no_providers(saml: IdentityProvider, root: User, client: Client) -> None:
    values = {"name": "Other", "metadata": saml.metadata}
    provider_create(actor=root, preset="saml", slug="other", values=values)

    for name in ("saml", "openid_connect"):
        for page in ("provider_start", "oidc_callback", "saml_metadata"):
            assert client.get(reverse(page, args=[name])).status_code == 404, (name, page)


def test_a_provider_may_be_called_as_a_protocol_is(
    forged: IdentityProvider, forge: Forge, root: User, dana: User, client: Client
) -> None:
    sealed, before = forged.client_secret_sealed, forged.client_secret_context
    forged.slug = "saml"
    forged.client_secret_sealed = reseal(sealed, context=before, to=forged.client_secret_context)
    forged.save()

    come_back(client, forged, forge, {})

    assert client.session["_auth_user_id"] == str(dana.pk)


def test_a_secret_of_another_provider_does_not_open_and_spoils_no_page(
    forged: IdentityProvider, forge: Forge, root: User, client: Client
) -> None:
    values = oidc_values(Server(0), discovery_url=f"{forge.address}{DISCOVERY}", name="Twin")
    twin = provider_create(actor=root, preset="oidc", slug="twin", values=values)
    IdentityProvider.objects.filter(pk=twin.pk).update(
        client_secret_sealed=forged.client_secret_sealed
    )

    assert client.get(reverse("sign_in")).status_code == 200
    assert client.get(reverse("provider_start", args=[forged.slug])).status_code == 302
    refused = client.get(reverse("provider_start", args=[twin.slug]))
    assert refused.status_code == 403
    assert "client_secret cannot be read" in text(refused)


def test_two_providers_that_know_us_by_one_name_ask_for_second_factors(
    forged: IdentityProvider, forge: Forge, root: User, dana: User, client: Client
) -> None:
    values = oidc_values(Server(0), discovery_url=f"{forge.address}{DISCOVERY}", name="Twin")
    provider_create(actor=root, preset="oidc", slug="twin", values=values)
    secret = generate_totp_secret()
    TOTP.activate(dana, secret)

    come_back(client, forged, forge, {})
    code = hotp_value(secret, list(yield_hotp_counters_from_time())[1])
    client.post(reverse("mfa_authenticate"), {"code": format_hotp_value(code)})

    assert client.session["_auth_user_id"] == str(dana.pk)


@pytest.mark.parametrize(
    "inner", ["", "<xenc:EncryptedData/>", ENCRYPTED], ids=["empty", "without a key", "to others"]
)
def test_an_answer_that_nobody_can_decrypt_is_refused(
    saml: IdentityProvider, root: User, client: Client, inner: str
) -> None:
    provider_change(actor=root, provider=saml, values={"signs_requests": True})
    wanted = request_id_of(client, saml)
    xml = SEALED.format(inner=inner, wanted=wanted)

    answer = post_answer(client, saml, base64.b64encode(xml.encode()).decode())

    assert answer.status_code == 403
    assert "sent an answer that is not accepted" in text(answer)
