"""The pages and REST of identity providers: administrators set them, secrets stay secret."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from pytest_django import Settings
from pytest_django.fixtures import DjangoAssertNumQueries
from rest_framework.test import APIClient

from apps.accounts.models import IdentityProvider, User
from apps.accounts.services.identity import provider_create
from apps.accounts.services.people import user_create
from apps.core.keyring import HIDDEN, new_key, unseal
from tests.dashboard.conftest import ClientFor
from tests.dashboard.page_reader import errors_at, text
from tests.identity.conftest import OIDC, at_oidc, oidc_values, path_of
from tests.identity.providers import CLIENT_SECRET, Server
from tests.page_words import words_on

pytestmark = pytest.mark.django_db

ApiAs = Callable[[User], APIClient]
REST = "/api/v1/identity-providers/"
PAGES: tuple[tuple[str, list[str]], ...] = (
    ("identity_list", []),
    ("identity_choose", []),
    ("identity_new", ["keycloak"]),
    ("log_in_settings", []),
    ("identity_edit", [OIDC]),
    ("identity_delete", [OIDC]),
)


@pytest.fixture
def client_for() -> ClientFor:
    def sign_in(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return sign_in


def secret_of(row: IdentityProvider) -> str:
    return unseal(row.client_secret_sealed, context=row.client_secret_context)


def typed(values: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A form as a browser sends it: with what a preset begins with."""
    base = {"claim_id": "sub", "claim_email": "email", "claim_groups": "groups", "pkce": "S256"}
    checks = {"is_active": "on", "requires_verified_email": "on", "verifies_signature": "on"}
    return {**base, **checks, "scopes": "openid profile email", "mapping": "", **values, **changes}


def test_only_administrators_see_that_there_are_such_pages(
    oidc: IdentityProvider, charlie: User, root: User, client_for: ClientFor, api_as: ApiAs
) -> None:
    for name, arguments in PAGES:
        path = reverse(name, args=arguments)
        assert client_for(charlie).get(path).status_code == 404, path
        assert client_for(root).get(path).status_code == 200, path
    for name in ("identity_switch", "identity_delete"):
        path = reverse(name, args=[OIDC])
        assert client_for(charlie).post(path, {"is_active": "0"}).status_code == 404
    assert api_as(charlie).get(REST).status_code == 403
    assert api_as(charlie).patch(f"{REST}{OIDC}/", {"name": "x"}).status_code == 403
    assert words_on(text(client_for(charlie).get(reverse("credential_list"))), "Identity") == []


def test_a_provider_is_made_in_the_form_and_its_secret_is_not_shown_again(
    root: User, client_for: ClientFor, dev_group: Group, loopback: None, oidc_server: Server
) -> None:
    path = reverse("identity_new", args=["oidc"])
    values = typed(oidc_values(oidc_server), slug="company-1", mapping="their = dev = dev")

    answer = client_for(root).post(path, values)

    assert answer.status_code == 302, text(answer)
    row = IdentityProvider.objects.get(slug="company-1")
    assert secret_of(row) == CLIENT_SECRET
    assert [(one.external_name, one.group) for one in row.mapping.all()] == [
        ("their = dev", dev_group)
    ]
    page = client_for(root).get(reverse("identity_edit", args=["company-1"]))
    assert CLIENT_SECRET not in page.content.decode()
    assert row.client_secret_sealed not in page.content.decode()
    client_for(root).post(
        reverse("identity_edit", args=["company-1"]),
        typed(oidc_values(oidc_server, client_secret=HIDDEN, name="Renamed")),
    )
    row.refresh_from_db()
    assert (row.name, secret_of(row)) == ("Renamed", CLIENT_SECRET)


@pytest.mark.parametrize(
    ("field", "value", "want"),
    [
        ("discovery_url", "http://login.example.com/x", "Must begin with https://"),
        ("discovery_url", "", ""),
        ("client_id", "", "Enter a value for"),
        ("claim_id", "", "Enter a value for"),
        ("name", "", "Enter a value for"),
        ("mapping", "nobody", "their group = our group"),
        ("mapping", "x = no such group", "is not a group here"),
        ("mapping", "x = Users", "is not a group here"),
    ],
)
def test_what_is_wrong_stands_at_the_field(
    root: User, client_for: ClientFor, field: str, value: str, want: str
) -> None:
    given = typed({"name": "Company", "client_id": "x", "discovery_url": "https://a.example/x"})
    path = reverse("identity_new", args=["oidc"])

    answer = client_for(root).post(path, given | {field: value})

    assert answer.status_code == 400
    # Without a discovery address, it is the addresses themselves that are missing.
    place = field if want else "token_url"
    assert (want or "Is missing") in errors_at(place, answer)


def test_a_name_is_taken_once(
    oidc: IdentityProvider, root: User, client_for: ClientFor, oidc_server: Server
) -> None:
    values = typed(oidc_values(oidc_server, name="COMPANY"), slug="company-2")

    answer = client_for(root).post(reverse("identity_new", args=["oidc"]), values)

    assert "taken" in errors_at("name", answer)


def test_metadata_is_read_from_a_file(
    root: User, client_for: ClientFor, loopback: None, saml_server: Server
) -> None:
    path = reverse("identity_new", args=["duo"])
    values = {"name": "Duo", "slug": "duo-1", "claim_id": "NameID", "is_active": "on"}
    files = {
        "nonsense": b"hello",
        "HTML": b"<html></html>",
        "entities": b'<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>',
        "empty": b"",
    }
    for name, content in files.items():
        upload = SimpleUploadedFile("m.xml", content)
        answer = client_for(root).post(path, values | {"metadata_file": upload})
        assert answer.status_code == 400, name

    upload = SimpleUploadedFile("m.xml", saml_server.metadata().encode())
    answer = client_for(root).post(path, values | {"metadata_file": upload})

    assert answer.status_code == 302, text(answer)
    assert "EntityDescriptor" in IdentityProvider.objects.get(slug="duo-1").metadata


def test_a_test_shows_what_came_back_and_saves_nothing(
    root: User, client_for: ClientFor, loopback: None, oidc_server: Server, dev_group: Group
) -> None:
    client = client_for(root)
    user_create(username="dana", password=None, email="dana@example.com")
    oidc_server.person("u-5", email="dana@example.com", email_verified=True, groups=["ml"])
    path = reverse("identity_new", args=["oidc"])
    values = typed(
        oidc_values(oidc_server), slug=OIDC, mapping="ml = dev", test="1", syncs_groups="on"
    )

    before = client.post(path, values, follow=True)
    way = re.search(r'href="(/sign-in/with/[^"]+)"', before.content.decode())
    assert way
    back = path_of(at_oidc(client.get(way[1])["Location"]))
    outcome = client.get(back, follow=True)

    words = text(outcome)
    assert "u-5" in words
    assert "dana@example.com (verified)" in words
    assert "ml dev member" in words
    assert int(client.session["_auth_user_id"]) == root.pk
    assert not IdentityProvider.objects.exists()
    assert not User.objects.get(username="dana").groups.filter(name="dev").exists()
    assert CLIENT_SECRET not in str(dict(client.session))
    form = client.get(f"{path}?slug={OIDC}&tried=1").content.decode()
    assert oidc_server.discovery in form
    assert "ml = dev" in form
    saved = client.post(path, values | {"client_secret": HIDDEN, "test": ""} | {"slug": OIDC})
    assert saved.status_code == 302


def test_a_test_that_fails_says_why(
    root: User, client_for: ClientFor, loopback: None, oidc_server: Server
) -> None:
    client = client_for(root)
    oidc_server.person("u-5", email="dana@example.com", groups=["what-tells-which-claim"])
    values = typed(oidc_values(oidc_server), slug=OIDC, claim_id="employee", test="1")

    client.post(reverse("identity_new", args=["oidc"]), values)
    start = client.get(reverse("provider_start", args=[OIDC]))
    outcome = client.get(path_of(at_oidc(start["Location"])), follow=True)

    assert "sent no usable id in the claim &#x27;employee&#x27;" in outcome.content.decode()
    assert "What came back" in text(outcome)
    assert "what-tells-which-claim" in text(outcome)
    assert "What it means" not in text(outcome)


def test_a_test_whose_key_is_gone_is_forgotten(
    root: User, client_for: ClientFor, loopback: None, oidc_server: Server, settings: Settings
) -> None:
    settings.RPM_SECRET_KEYS = [new_key()]
    client, path = client_for(root), reverse("identity_new", args=["oidc"])
    values = typed(oidc_values(oidc_server, name="Tried"), slug=OIDC, test="1")
    client.post(path, values)
    before = client.get(f"{path}?slug={OIDC}&tried=1")

    settings.RPM_SECRET_KEYS = [new_key()]
    after = client.get(f"{path}?slug={OIDC}&tried=1")

    assert "Tried" in before.content.decode()
    assert after.status_code == 200
    assert words_on(after.content.decode(), "Tried") == []


def test_somebody_elses_test_changes_no_log_in(
    root: User, client_for: ClientFor, loopback: None, oidc_server: Server, client: Client
) -> None:
    values = typed(oidc_values(oidc_server), slug=OIDC, test="1")
    client_for(root).post(reverse("identity_new", args=["oidc"]), values)

    assert client.get(reverse("provider_start", args=[OIDC])).status_code == 404


def test_rest_makes_changes_and_removes_providers(
    root: User, api_as: ApiAs, loopback: None, oidc_server: Server, dev_group: Group
) -> None:
    api = api_as(root)
    values = oidc_values(oidc_server, preset="keycloak")
    pairs = [{"external": "ml", "group": "dev"}]

    made = api.post(REST, values | {"mapping": pairs})
    changed = api.patch(f"{REST}{made.data['id']}/", {"is_active": False})
    refused = api.patch(f"{REST}{made.data['id']}/", {"token_url": "ftp://x", "pkce": "S512"})

    assert made.status_code == 201, made.data
    assert made.data["client_secret"] == HIDDEN
    assert made.data["mapping"] == pairs
    assert CLIENT_SECRET not in str(api.get(REST).json())
    assert changed.data["is_active"] is False
    assert changed.data["mapping"] == pairs
    assert refused.status_code == 400
    assert "pkce" in refused.data["fields"]
    assert api.delete(f"{REST}{made.data['id']}/").status_code == 204
    assert api.get(f"{REST}{made.data['id']}/").status_code == 404


def test_lists_cost_a_fixed_number_of_queries(
    root: User,
    api_as: ApiAs,
    client_for: ClientFor,
    loopback: None,
    oidc_server: Server,
    dev_group: Group,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    for number in range(12):
        provider_create(
            actor=root,
            preset="oidc",
            values=oidc_values(oidc_server, name=f"P {number}"),
            mapping=[("ml", dev_group)],
        )
    api, client = api_as(root), client_for(root)

    with django_assert_max_num_queries(6):
        assert len(api.get(REST).json()["results"]) == 12
    with django_assert_max_num_queries(10):
        assert "P 11" in client.get(reverse("identity_list")).content.decode()
    with django_assert_max_num_queries(4):
        assert "Continue with P 11" in text(Client().get(reverse("sign_in")))


def test_rest_reads_and_changes_how_people_log_in(
    root: User, charlie: User, api_as: ApiAs, dev_group: Group
) -> None:
    path, api = "/api/v1/log-in-rules/", api_as(root)
    boss = user_create(username="boss", password="Correct-horse-7", groups=["Admins"])

    before = api.get(path).json()
    wrong = api.patch(path, {"allows_passwords": False, "break_glass": "charlie"})
    unknown = api.patch(path, {"break_glass": "nobody", "second_factor_groups": ["none"]})
    misspelt = api.patch(path, {"allow_passwords": False})
    changed = api.patch(path, {"allows_passwords": False, "break_glass": boss.username})
    kept = api.patch(path, {"second_factor_groups": ["dev"]}).json()

    assert before == {
        "allows_passwords": True,
        "break_glass": "",
        "requires_second_factor": False,
        "second_factor_groups": [],
    }
    assert set(wrong.json()["fields"]) == {"break_glass"}
    assert set(unknown.json()["fields"]) == {"break_glass", "second_factor_groups"}
    assert misspelt.status_code == 400
    assert changed.status_code == 200, changed.json()
    assert kept == changed.json() | {"second_factor_groups": ["dev"]}
    assert api_as(charlie).get(path).status_code == 403
    assert api_as(charlie).patch(path, {}).status_code == 403
