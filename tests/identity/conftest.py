"""Providers of both protocols, and browsers without a browser that log in with them."""

from collections.abc import Iterator
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from django.core.cache import cache
from pytest_django import Settings

from apps.accounts.models import IdentityProvider, User
from apps.accounts.services.identity import provider_create
from apps.accounts.services.people import user_create
from tests.identity.forged_provider import Forge, running_forge
from tests.identity.providers import (
    CLIENT_ID,
    CLIENT_SECRET,
    Server,
    running_oidc,
    running_saml,
)

HERE = "http://testserver"
OIDC, SAML = "oidc-test", "saml-test"


@pytest.fixture(scope="session")
def oidc_server() -> Iterator[Server]:
    with running_oidc(f"{HERE}/sign-in/with/{OIDC}/callback/") as server:
        yield server


@pytest.fixture(scope="session")
def saml_server() -> Iterator[Server]:
    base = f"{HERE}/sign-in/with/{SAML}"
    with running_saml(f"{base}/acs/", f"{base}/metadata/") as server:
        yield server


@pytest.fixture
def loopback(settings: Settings) -> None:
    """Providers on this machine may be asked; nothing is known of one that had their port."""
    cache.clear()
    settings.RPM_IDENTITY_ALLOW_LOOPBACK = True


def oidc_values(server: Server, **changes: object) -> dict[str, object]:
    """What an administrator types for the provider from npm."""
    return {
        "name": "Company",
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "discovery_url": server.discovery,
        "extra_scopes": "groups",
        **changes,
    }


@pytest.fixture
def oidc(loopback: None, oidc_server: Server, root: User) -> IdentityProvider:
    return provider_create(actor=root, preset="oidc", slug=OIDC, values=oidc_values(oidc_server))


@pytest.fixture
def saml(loopback: None, saml_server: Server, root: User) -> IdentityProvider:
    values = {"name": "Company", "metadata": saml_server.metadata(), "trusts_email": True}
    return provider_create(actor=root, preset="saml", slug=SAML, values=values)


@pytest.fixture(scope="module")
def forge() -> Iterator[Forge]:
    with running_forge() as made:
        yield made


@pytest.fixture
def forged(loopback: None, forge: Forge, root: User) -> IdentityProvider:
    """A provider that says whatever a test wants."""
    address = f"{forge.address}/.well-known/openid-configuration"
    values = oidc_values(Server(0), discovery_url=address)
    return provider_create(actor=root, preset="oidc", slug="forge", values=values)


@pytest.fixture
def dana(db: None) -> User:
    return user_create(username="dana", password=None, email="dana@example.com")


def at_oidc(address: str) -> str:
    """Log in there; the address with which the browser comes back."""
    with httpx.Client() as browser:
        answer = browser.get(address)
        for _ in range(8):
            assert answer.is_redirect, f"{answer.status_code}: {answer.text[:500]}"
            address = urljoin(str(answer.url), answer.headers["location"])
            if address.startswith(HERE):
                return address
            answer = browser.get(address)
    raise AssertionError(address)


def path_of(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path
