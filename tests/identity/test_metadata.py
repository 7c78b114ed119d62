"""Settings that would make a SAML provider fail later are refused in the form."""

from base64 import b64encode
from collections.abc import Callable

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from apps.accounts.models import IdentityProvider, User
from tests.dashboard.page_reader import errors_at, text
from tests.identity.providers import Server

pytestmark = pytest.mark.django_db

ApiAs = Callable[[User], APIClient]
REST = "/api/v1/identity-providers/"


def changed(metadata: str, change: str) -> str:
    """The provider's metadata with something in it that shows only later."""
    certificate = metadata.partition("X509Certificate>")[2].partition("<")[0]
    wrong = {
        "empty certificate": (certificate, ""),
        "junk as certificate": (certificate, "junk"),
        "no certificate": (certificate, b64encode(b"something else").decode()),
        "other letters": ("http://127.0.0.1", "https://m\u00fcnchen.example"),
    }
    before, after = wrong[change]
    assert before in metadata
    return metadata.replace(before, after)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ("empty certificate", "is no metadata of a saml provider"),
        ("junk as certificate", "holds a certificate for signatures that is none"),
        ("no certificate", "holds a certificate for signatures that is none"),
        ("other letters", "outside ascii"),
    ],
)
def test_metadata_that_would_fail_at_the_first_log_in_is_not_taken(
    root: User,
    client: Client,
    api_as: ApiAs,
    loopback: None,
    saml_server: Server,
    change: str,
    want: str,
) -> None:
    metadata = changed(saml_server.metadata(), change)
    values = {"name": "Duo", "slug": "duo-1", "claim_id": "NameID", "is_active": "on"}
    upload = SimpleUploadedFile("m.xml", metadata.encode())

    client.force_login(root)
    page = client.post(reverse("identity_new", args=["duo"]), values | {"metadata_file": upload})
    rest = api_as(root).post(REST, {"preset": "duo", "name": "Duo", "metadata": metadata})

    assert (page.status_code, rest.status_code) == (400, 400)
    assert want in errors_at("metadata_file", page).lower()
    assert want in rest.json()["fields"]["metadata"].lower()


@pytest.mark.parametrize("entity_id", ["a<b", "a>b", "a&b", 'a"b', "a b", "a\tb"])
def test_an_entity_id_that_would_break_our_metadata_is_not_taken(
    root: User, api_as: ApiAs, client: Client, saml: IdentityProvider, entity_id: str
) -> None:
    api, path = api_as(root), f"{REST}{saml.slug}/"

    wrong = api.patch(path, {"entity_id": entity_id})
    right = api.patch(path, {"entity_id": "urn:rpm:it's-us/1?x=1#y"})

    assert wrong.status_code == 400
    assert "write one such as" in wrong.json()["fields"]["entity_id"]
    assert right.status_code == 200
    assert client.get(reverse("saml_metadata", args=[saml.slug])).status_code == 200


def test_settings_from_before_they_were_checked_are_a_sentence(
    saml: IdentityProvider, client: Client
) -> None:
    for change in ("other letters", "empty certificate"):
        metadata = changed(saml.metadata, change)
        IdentityProvider.objects.filter(pk=saml.pk).update(metadata=metadata)

        for name in ("provider_start", "saml_metadata"):
            answer = client.get(reverse(name, args=[saml.slug]))
            assert answer.status_code == 403, (change, name)
            assert "cannot be used" in text(answer)


def test_one_that_would_be_refused_today_is_switched_off_all_the_same(
    saml: IdentityProvider, root: User, client: Client
) -> None:
    metadata = changed(saml.metadata, "other letters")
    IdentityProvider.objects.filter(pk=saml.pk).update(metadata=metadata, is_active=True)
    client.force_login(root)
    switch = reverse("identity_switch", args=[saml.slug])

    client.post(switch, {"is_active": "0"})

    saml.refresh_from_db()
    assert not saml.is_active
    client.post(switch, {"is_active": "1"})
    saml.refresh_from_db()
    assert not saml.is_active
