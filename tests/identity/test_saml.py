"""Log-ins with a real SAML provider, and what it may learn about this installation."""

import re
from typing import Any
from xml.etree import ElementTree as ET

import httpx
import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse

from apps.accounts.models import IdentityProvider, User
from apps.accounts.services.identity import mapping_set, provider_change
from apps.accounts.services.people import user_create
from apps.core.keyring import unseal
from tests.identity.forged_provider import post_answer, provider_redirect_of
from tests.identity.providers import Server

pytestmark = pytest.mark.django_db


@pytest.fixture
def dana(db: None) -> User:
    return user_create(username="dana", password=None, email="dana@example.com")


def come_in(client: Client, row: IdentityProvider) -> Any:
    """The whole way there and back, as the form of the provider's page leads."""
    page = httpx.get(provider_redirect_of(client, row)).raise_for_status().text
    found = re.search(r'name="SAMLResponse" value="([^"]+)"', page)
    assert found, page
    return post_answer(client, row, found[1])


def test_a_person_comes_in_with_groups_and_leaves_them_again(
    saml: IdentityProvider,
    saml_server: Server,
    root: User,
    dana: User,
    dev_group: Group,
    client: Client,
) -> None:
    provider_change(actor=root, provider=saml, values={"syncs_groups": True})
    mapping_set(saml, [("ml-platform", dev_group)])

    saml_server.person("u-1", email="dana@example.com", groups=["x", "ml-platform"])
    answer = come_in(client, saml)
    first = dana.groups.filter(name="dev").exists()
    saml_server.person("u-1", email="dana@example.com")
    come_in(Client(), saml)

    assert answer.status_code == 302
    assert int(client.session["_auth_user_id"]) == dana.pk
    assert first
    assert not dana.groups.filter(name="dev").exists()


def test_an_address_counts_only_where_an_administrator_said_so(
    saml: IdentityProvider, saml_server: Server, root: User, dana: User, client: Client
) -> None:
    provider_change(actor=root, provider=saml, values={"trusts_email": False})
    saml_server.person("u-1", email="dana@example.com")

    assert come_in(client, saml).status_code == 403
    assert "_auth_user_id" not in client.session


def test_our_metadata_names_what_the_provider_must_know(
    saml: IdentityProvider, root: User, client: Client
) -> None:
    provider_change(actor=root, provider=saml, values={"signs_requests": True})

    answer = client.get(reverse("saml_metadata", args=[saml.slug]))

    xml = ET.fromstring(answer.content)
    assert xml.attrib["entityID"].endswith(f"/sign-in/with/{saml.slug}/metadata/")
    assert f"/sign-in/with/{saml.slug}/acs/" in answer.content.decode()
    saml.refresh_from_db()
    certificate = "".join(saml.certificate.splitlines()[1:-1])
    assert certificate in answer.content.decode().replace("\n", "")


def test_our_requests_are_signed_where_that_was_asked_for(
    saml: IdentityProvider, saml_server: Server, root: User, dana: User, client: Client
) -> None:
    provider_change(actor=root, provider=saml, values={"signs_requests": True})
    saml_server.person("u-1", email="dana@example.com")

    address = provider_redirect_of(client, saml)
    answer = come_in(client, saml)

    assert "Signature=" in address
    assert answer.status_code == 302
    saml.refresh_from_db()
    assert "PRIVATE KEY" not in saml.private_key_sealed
    assert "PRIVATE KEY" in unseal(saml.private_key_sealed, context=saml.private_key_context)
