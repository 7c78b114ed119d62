"""Tokens and assertions that are wrong in one thing each: none of them signs anybody in."""

import base64
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import jwt
import pytest
from allauth.socialaccount.models import SocialAccount
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.identity.keys import key_pair_new
from apps.accounts.models import IdentityProvider, User
from apps.accounts.services.identity import provider_change
from apps.accounts.services.identity_log_in import assertion_use
from apps.core.errors import NotAllowed
from tests.dashboard.page_reader import text
from tests.identity.forged_provider import (
    Assertion,
    Forge,
    encoded,
    post_answer,
    request_id_of,
    state_and_nonce_of,
)
from tests.identity.providers import Server

pytestmark = pytest.mark.django_db

OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
Token = Callable[[Forge, str], str]


def with_token(client: Client, row: IdentityProvider, forge: Forge, token: Token) -> Any:
    """The browser comes back, and the provider hands this token over."""
    state, nonce = state_and_nonce_of(client, row)
    forge.id_token = token(forge, nonce)
    return client.get(reverse("oidc_callback", args=[row.slug]), {"code": "any", "state": state})


def is_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def test_a_right_token_lets_in_and_the_access_token_is_given_back(
    forged: IdentityProvider, forge: Forge, dana: User, client: Client
) -> None:
    with_token(client, forged, forge, lambda forge, nonce: forge.sign(forge.claims(nonce)))

    assert is_in(client)
    assert forge.given_back == ["a"]


def public_as_secret(forge: Forge, nonce: str) -> str:
    """Signed with the public key, as if that were a secret that both know."""
    pem = forge.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    # PyJWT refuses to make such a token, so it is made by hand.
    head, body, _ = jwt.encode(forge.claims(nonce), "x" * 32, "HS256").split(".")
    key = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    sign = jwt.utils.base64url_encode(key.sign(f"{head}.{body}".encode(), pem)).decode()
    return f"{head}.{body}.{sign}"


@pytest.mark.parametrize(
    ("token", "want"),
    [
        pytest.param(
            lambda forge, nonce: forge.sign(forge.claims(nonce), key=OTHER),
            "Signature verification failed",
            id="signed by somebody else",
        ),
        pytest.param(
            lambda forge, nonce: jwt.encode(forge.claims(nonce), "", "none"),
            "not accepted",
            id="not signed",
        ),
        pytest.param(public_as_secret, "not accepted", id="the public key as a secret"),
        pytest.param(
            lambda forge, nonce: forge.sign(forge.claims(nonce, aud="another")),
            "Audience",
            id="for another client",
        ),
        pytest.param(
            lambda forge, nonce: forge.sign(forge.claims(nonce, azp="another")),
            "another client",
            id="made for another party",
        ),
        pytest.param(
            lambda forge, nonce: forge.sign(forge.claims(nonce, iss="https://evil.example")),
            "issuer",
            id="of another issuer",
        ),
        pytest.param(
            lambda forge, nonce: forge.sign(forge.claims(nonce, exp=1_600_000_000)),
            "expired",
            id="run out",
        ),
        pytest.param(
            lambda forge, nonce: forge.sign(forge.claims("of another browser")),
            "answers another request",
            id="for another request",
        ),
        pytest.param(
            lambda forge, nonce: forge.sign(
                {k: v for k, v in forge.claims(nonce).items() if k != "exp"}
            ),
            "exp",
            id="without an end",
        ),
        pytest.param(lambda forge, nonce: "no.token.atall", "not accepted", id="nonsense"),
        pytest.param(lambda forge, nonce: "", "no identity token", id="none"),
    ],
)
def test_a_wrong_identity_token_lets_nobody_in(
    forged: IdentityProvider, forge: Forge, dana: User, client: Client, token: Token, want: str
) -> None:
    answer = with_token(client, forged, forge, token)

    assert answer.status_code == 403
    assert want in text(answer)
    assert not is_in(client)


def test_user_info_of_somebody_else_is_refused(
    forged: IdentityProvider, forge: Forge, root: User, dana: User, client: Client
) -> None:
    provider_change(actor=root, provider=forged, values={"uses_user_info": True})
    forge.user_info = {"sub": "u-1", "email": "dana@example.com", "email_verified": True}

    answer = with_token(client, forged, forge, lambda forge, nonce: forge.sign(forge.claims(nonce)))

    assert "answers for another user" in text(answer)
    assert not is_in(client)


def test_a_wrong_state_is_refused(
    forged: IdentityProvider, forge: Forge, dana: User, client: Client
) -> None:
    state_and_nonce_of(client, forged)
    path = reverse("oidc_callback", args=[forged.slug])

    for state in ("", "another"):
        assert client.get(path, {"code": "any", "state": state}).status_code == 403
    assert not is_in(client)


def test_a_discovery_document_of_another_issuer_is_refused(
    forged: IdentityProvider, root: User, client: Client
) -> None:
    values = {"issuer": "https://other.example.com"}
    provider_change(actor=root, provider=forged, values=values)

    answer = client.get(reverse("provider_start", args=[forged.slug]))

    assert answer.status_code == 403
    assert "belongs to the issuer" in text(answer)


def test_a_right_assertion_lets_in_once(
    saml: IdentityProvider, saml_server: Server, dana: User, client: Client
) -> None:
    right = Assertion(saml_server, saml, request_id_of(client, saml)).signed()
    post_answer(client, saml, right)
    first = is_in(client)
    client.post(reverse("sign_out"))

    post_answer(client, saml, right)

    assert first
    assert not is_in(client)


def test_an_assertion_that_names_no_request_could_be_anybodys(
    saml: IdentityProvider, saml_server: Server, root: User, dana: User, client: Client
) -> None:
    """Unless the answer around it, which names one, is signed itself."""
    unbound = Assertion(saml_server, saml, request_id_of(client, saml), answers="")

    answer = post_answer(client, saml, unbound.signed())

    assert answer.status_code == 403
    assert "does not name the request" in text(answer)
    assert not is_in(client)
    provider_change(actor=root, provider=saml, values={"requires_signed_assertions": False})
    whole = Assertion(saml_server, saml, request_id_of(client, saml), answers="")
    post_answer(client, saml, whole.signed_whole())
    assert is_in(client)


def test_a_request_outside_of_what_is_signed_is_not_named(
    saml: IdentityProvider, saml_server: Server, dana: User, client: Client
) -> None:
    request = request_id_of(client, saml)
    unbound = Assertion(saml_server, saml, request, answers="")
    unsigned = (
        '<samlp:Extensions><saml:Subject><saml:SubjectConfirmation Method="urn:any">'
        f'<saml:SubjectConfirmationData InResponseTo="{request}"/>'
        "</saml:SubjectConfirmation></saml:Subject></samlp:Extensions>"
    )

    answer = post_answer(client, saml, unbound.signed(unsigned=unsigned))

    assert answer.status_code == 403
    assert "does not name the request" in text(answer)
    assert not is_in(client)


def test_an_id_that_is_another_one_each_time_is_none(
    saml: IdentityProvider, saml_server: Server, root: User, dana: User, client: Client
) -> None:
    transient = Assertion(saml_server, saml, request_id_of(client, saml), format="transient")

    answer = post_answer(client, saml, transient.signed())

    assert answer.status_code == 403
    assert "NameID is transient" in text(answer)
    assert not SocialAccount.objects.exists()
    provider_change(actor=root, provider=saml, values={"claim_id": "email"})
    again = replace(transient, in_response_to=request_id_of(client, saml))
    post_answer(client, saml, again.signed())
    assert is_in(client)


def test_an_assertion_counts_once_whatever_it_answers(saml: IdentityProvider) -> None:
    until = timezone.now() + timedelta(minutes=5)
    assertion_use(provider=saml, assertion_id="_a-1", until=until)

    with pytest.raises(NotAllowed, match="was used before"):
        assertion_use(provider=saml, assertion_id="_a-1", until=until)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param({"audience": "https://other.example"}, "audience", id="other audience"),
        pytest.param({"issuer": "https://evil.example"}, "issuer", id="other issuer"),
        pytest.param({"recipient": "https://other.example/acs/"}, "received at", id="elsewhere"),
        pytest.param({"ends": timedelta(minutes=-6)}, "expired", id="run out"),
        pytest.param({"in_response_to": ""}, "nobody here asked", id="not asked for"),
        pytest.param({"in_response_to": "_x"}, "did not make", id="another's request"),
        pytest.param({"answers": "_x"}, "SubjectConfirmation", id="an older assertion"),
    ],
)
def test_a_wrong_assertion_lets_nobody_in(
    saml: IdentityProvider,
    saml_server: Server,
    dana: User,
    client: Client,
    change: dict[str, Any],
    want: str,
) -> None:
    right = Assertion(saml_server, saml, request_id_of(client, saml))

    answer = post_answer(client, saml, replace(right, **change).signed())

    assert want in text(answer)
    assert answer.status_code == 403
    assert not is_in(client)


def test_a_signature_must_be_the_providers_around_what_is_read(
    saml: IdentityProvider, saml_server: Server, dana: User, client: Client
) -> None:
    right = Assertion(saml_server, saml, request_id_of(client, saml))
    certificate, key = key_pair_new("evil")
    good = base64.b64decode(right.signed()).decode()
    answers = {
        "of another key": right.signed(key=key, certificate=certificate),
        "none": encoded(right.xml()),
        "changed after": encoded(good.replace("dana@example.com", "root@example.com")),
        "wrapped": wrapped(good),
        "not XML": encoded("nonsense"),
        "not even base64": "%%%",
    }
    for name, answer in answers.items():
        given = post_answer(client, saml, answer)

        assert given.status_code == 403, name
        assert not is_in(client), name


def wrapped(good: str) -> str:
    """The signed assertion is still there, and a made-up one stands before it."""
    begin, end = good.index("<saml:Assertion"), good.index("</samlp:Response>")
    evil = good[begin:end].replace("_a-1", "_evil").replace("dana@", "root@")
    cut = evil.index("<ds:Signature"), evil.index("</ds:Signature>") + len("</ds:Signature>")
    return encoded(good[:begin] + evil[: cut[0]] + evil[cut[1] :] + good[begin:])


def test_entities_of_xml_are_not_read(
    saml: IdentityProvider, saml_server: Server, dana: User, client: Client
) -> None:
    right = Assertion(saml_server, saml, request_id_of(client, saml)).xml()
    bomb = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + right.replace("dana", "&a;")

    answer = post_answer(client, saml, encoded(bomb))

    assert answer.status_code == 403
    assert "root:" not in answer.content.decode()
