"""A provider that answers as a test says: tokens and assertions that must be refused.

The real ones are in `providers.py`; they cannot be made to send wrong answers.
"""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from django.test import Client
from django.urls import reverse
from jwt.algorithms import RSAAlgorithm
from onelogin.saml2.utils import OneLogin_Saml2_Utils

from apps.accounts.models import IdentityProvider
from tests.identity.providers import CLIENT_ID, Server

ISSUED_S = 300


@dataclass
class Forge:
    """Its tokens are what `token` makes of the claims of a valid one."""

    address: str = ""
    key: rsa.RSAPrivateKey = field(
        default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )
    id_token: str = ""
    user_info: dict[str, Any] = field(default_factory=dict)
    given_back: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    # Further fields of the token endpoint's answer; and the content type of all answers.
    token: dict[str, Any] = field(default_factory=dict)
    kind: str = "application/json"
    # Answers in place of the right ones, by path: status, body and type.
    instead: dict[str, tuple[int, bytes, str]] = field(default_factory=dict)

    def claims(self, nonce: str, **changes: Any) -> dict[str, Any]:
        now = int(time.time())
        return {
            "iss": self.address,
            "aud": CLIENT_ID,
            "sub": "u-9",
            "iat": now,
            "exp": now + ISSUED_S,
            "nonce": nonce,
            "email": "dana@example.com",
            "email_verified": True,
            **changes,
        }

    def sign(self, claims: dict[str, Any], *, key: Any = None, algorithm: str = "RS256") -> str:
        return jwt.encode(claims, key or self.key, algorithm, headers={"kid": "one"})

    def answer(self, path: str) -> dict[str, Any]:
        if path.endswith("/openid-configuration"):
            names = ("authorization", "token", "userinfo", "revocation")
            ends = {f"{name}_endpoint": f"{self.address}/{name}" for name in names}
            return {"issuer": self.address, "jwks_uri": f"{self.address}/jwks", **ends}
        if path == "/jwks":
            public = json.loads(RSAAlgorithm.to_jwk(self.key.public_key()))
            return {"keys": [public | {"kid": "one", "use": "sig", "alg": "RS256"}]}
        if path == "/userinfo":
            return self.user_info
        tokens = {"access_token": "a", "token_type": "Bearer", "id_token": self.id_token}
        return tokens | self.token


@contextmanager
def running_forge() -> Iterator[Forge]:
    """The provider, listening on loopback."""
    forge = Forge()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            forge.asked.append(path)
            right = (200, json.dumps(forge.answer(path)).encode(), forge.kind)
            status, body, kind = forge.instead.get(path, right)
            self.send_response(status)
            if kind:
                self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if self.path == "/revocation":
                forge.given_back += parse_qs(sent)["token"]
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Nothing: what matters is asserted."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    forge.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield forge
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def provider_redirect_of(client: Client, row: IdentityProvider, *, next_url: str = "") -> str:
    """Where the sign-in page sends the browser."""
    answer = client.get(reverse("provider_start", args=[row.slug]), {"next": next_url})
    assert answer.status_code == 302, answer.content.decode()
    return str(answer["Location"])


def state_and_nonce_of(client: Client, row: IdentityProvider) -> tuple[str, str]:
    """State and nonce of a log-in that begins now."""
    query = parse_qs(urlsplit(provider_redirect_of(client, row)).query)
    return query["state"][0], query["nonce"][0]


def request_id_of(client: Client, row: IdentityProvider) -> str:
    """The id of a SAML request that begins now."""
    query = parse_qs(urlsplit(provider_redirect_of(client, row)).query)
    xml = OneLogin_Saml2_Utils.decode_base64_and_inflate(query["SAMLRequest"][0]).decode()
    return str(xml.partition('ID="')[2].partition('"')[0])


@dataclass(frozen=True)
class Assertion:
    """An answer of a SAML provider; a test changes what must not be accepted."""

    server: Server
    row: IdentityProvider
    in_response_to: str
    audience: str = ""
    issuer: str = ""
    recipient: str = ""
    ends: timedelta = timedelta(minutes=5)
    email: str = "dana@example.com"
    identifier: str = "_a-1"
    subject: str = "u-7"
    answers: str | None = None
    format: str = "persistent"

    def xml(self) -> str:
        base = f"http://testserver/sign-in/with/{self.row.slug}"
        now = datetime.now(UTC)
        to = f'InResponseTo="{self.in_response_to}"' if self.in_response_to else ""
        answers = self.in_response_to if self.answers is None else self.answers
        names = {
            "now": _stamp(now),
            "before": _stamp(now - timedelta(minutes=10)),
            "ends": _stamp(now + self.ends),
            "acs": self.recipient or f"{base}/acs/",
            "issuer": self.issuer or f"{self.server.address}/metadata",
            "audience": self.audience or f"{base}/metadata/",
            "to": to,
            "answers": f'InResponseTo="{answers}"' if answers else "",
        }
        names |= {"id": self.identifier, "email": self.email, "subject": self.subject}
        return _RESPONSE.format(**names, format=self.format)

    def signed_whole(self) -> str:
        """With a signature around the answer, and none around the assertion in it."""
        done = OneLogin_Saml2_Utils.add_sign(self.xml(), self.server.key, self.server.certificate)
        return encoded(done.decode())

    def signed(self, *, key: str = "", certificate: str = "", unsigned: str = "") -> str:
        """With a signature around the assertion, as the field SAMLResponse holds it.

        Args:
            unsigned: a part of the answer outside of what is signed.
        """
        xml = self.xml().replace("<samlp:Status>", f"{unsigned}<samlp:Status>", 1)
        begin, end = xml.index("<saml:Assertion"), xml.index("</samlp:Response>")
        inner = xml[begin:end].replace(
            "<saml:Assertion",
            '<saml:Assertion xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion"',
            1,
        )
        done = OneLogin_Saml2_Utils.add_sign(
            inner, key or self.server.key, certificate or self.server.certificate
        ).decode()
        return encoded(xml[:begin] + done + xml[end:])


def encoded(xml: str) -> str:
    return base64.b64encode(xml.encode()).decode()


def post_answer(client: Client, row: IdentityProvider, answer: str) -> Any:
    """Post the provider's form; the page after it, or the refusal."""
    given = client.post(reverse("saml_acs", args=[row.slug]), {"SAMLResponse": answer})
    return client.get(given["Location"]) if given.status_code == 302 else given


def _stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


_RESPONSE = (
    '<samlp:Response xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol" '
    'xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="_r-{id}" Version="2.0" '
    'IssueInstant="{now}" Destination="{acs}" {to}><saml:Issuer>{issuer}</saml:Issuer>'
    '<samlp:Status><samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:Success"/>'
    '</samlp:Status><saml:Assertion ID="{id}" Version="2.0" IssueInstant="{now}">'
    "<saml:Issuer>{issuer}</saml:Issuer><saml:Subject>"
    '<saml:NameID Format="urn:oasis:names:tc:SAML:2.0:nameid-format:{format}">{subject}'
    '</saml:NameID><saml:SubjectConfirmation Method="urn:oasis:names:tc:SAML:2.0:cm:bearer">'
    '<saml:SubjectConfirmationData NotOnOrAfter="{ends}" Recipient="{acs}" {answers}/>'
    "</saml:SubjectConfirmation></saml:Subject>"
    '<saml:Conditions NotBefore="{before}" NotOnOrAfter="{ends}"><saml:AudienceRestriction>'
    "<saml:Audience>{audience}</saml:Audience></saml:AudienceRestriction></saml:Conditions>"
    '<saml:AuthnStatement AuthnInstant="{now}"><saml:AuthnContext><saml:AuthnContextClassRef>'
    "urn:oasis:names:tc:SAML:2.0:ac:classes:Password</saml:AuthnContextClassRef>"
    "</saml:AuthnContext></saml:AuthnStatement><saml:AttributeStatement>"
    '<saml:Attribute Name="email"><saml:AttributeValue>{email}</saml:AttributeValue>'
    "</saml:Attribute></saml:AttributeStatement></saml:Assertion></samlp:Response>"
)
