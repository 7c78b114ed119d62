"""The claims by which a user is matched to an account, and those by which not."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.test import Client
from django.urls import reverse

from apps.accounts.identity.claims import ProviderIdentity
from apps.accounts.identity.keys import key_pair_new
from apps.accounts.models import IdentityProvider, User
from apps.accounts.selectors import links_of
from apps.accounts.services.identity import provider_change, provider_create
from apps.accounts.services.identity_log_in import identity_accept
from apps.accounts.services.people import user_create
from apps.core.errors import NotAllowed
from apps.events.models import AuditEntry
from tests.dashboard.page_reader import text
from tests.identity.conftest import oidc_values
from tests.identity.forged_provider import (
    Assertion,
    Forge,
    post_answer,
    request_id_of,
    running_forge,
)
from tests.identity.providers import Server
from tests.identity.test_invalid_responses import is_in, with_token

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def one() -> Iterator[Forge]:
    with running_forge() as made:
        yield made


@pytest.fixture(scope="module")
def other() -> Iterator[Forge]:
    with running_forge() as made:
        yield made


def trusting(root: User, forge: Forge, slug: str, **changes: object) -> IdentityProvider:
    values = oidc_values(Server(0), name=slug, discovery_url=discovery_of(forge), **changes)
    return provider_create(actor=root, preset="oidc", slug=slug, values=values)


def discovery_of(forge: Forge) -> str:
    return f"{forge.address}/.well-known/openid-configuration"


def come_in(client: Client, row: IdentityProvider, forge: Forge, **claims: Any) -> Any:
    """The provider says this about the user who logs in."""
    return with_token(
        client, row, forge, lambda forge, nonce: forge.sign(forge.claims(nonce, **claims))
    )


@pytest.mark.parametrize(
    ("theirs", "claimed"),
    [
        pytest.param("mike@corp.example", "m\u0131ke@corp.example", id="an i without its dot"),
        pytest.param("mise@corp.example", "mi\u017fe@corp.example", id="a long s"),
        pytest.param("mike@corp.example", "mi\u212ae@corp.example", id="the sign of kelvin"),
        pytest.param("m@microsoft.com", "m@m\u0131crosoft.com", id="another domain"),
        pytest.param("m\u0131ke@corp.example", "mike@corp.example", id="the other way round"),
    ],
)
def test_an_address_that_only_looks_alike_is_nobodys(
    loopback: None, one: Forge, root: User, client: Client, theirs: str, claimed: str
) -> None:
    row = trusting(root, one, "one")
    user_create(username="mike", password=None, email=theirs)

    answer = come_in(client, row, one, email=claimed, email_verified=True)

    assert answer.status_code == 403
    assert not is_in(client)
    assert not SocialAccount.objects.exists()


def test_an_account_made_with_an_unverified_address_waits_for_nobody(
    loopback: None, one: Forge, other: Forge, root: User, client: Client
) -> None:
    loose = trusting(root, one, "one", creates_people=True, requires_verified_email=False)
    strict = trusting(root, other, "other")
    address = {"email": "victim@example.com"}
    come_in(Client(), loose, one, sub="evil", email_verified=False, **address)

    answer = come_in(client, strict, other, sub="victim", email_verified=True, **address)

    assert answer.status_code == 403
    assert "nobody confirmed that it is yours" in text(answer)
    assert not is_in(client)


def test_an_account_made_with_a_verified_address_is_found_by_it(
    loopback: None, one: Forge, other: Forge, root: User, client: Client
) -> None:
    first = trusting(root, one, "one", creates_people=True)
    second = trusting(root, other, "other")
    address = {"email": "dana@example.com", "email_verified": True}
    come_in(Client(), first, one, sub="u-1", **address)

    come_in(client, second, other, sub="u-2", **address)

    assert is_in(client)
    assert User.objects.filter(email="dana@example.com").count() == 1


def test_what_is_verified_is_the_claim_email_and_no_other(
    loopback: None, one: Forge, root: User, client: Client
) -> None:
    row = trusting(root, one, "one", claim_email="preferred_username")
    user_create(username="dana", password=None, email="dana@example.com")
    claims = {"email": "evil@example.com", "preferred_username": "dana@example.com"}

    answer = come_in(client, row, one, email_verified=True, **claims)

    assert answer.status_code == 403
    assert "does not say that your e-mail address is verified" in text(answer)
    assert not is_in(client)
    provider_change(actor=root, provider=row, values={"trusts_email": True})
    come_in(client, row, one, email_verified=True, **claims)
    assert is_in(client)


def test_an_address_of_the_user_info_endpoint_is_not_what_the_token_calls_verified(
    loopback: None, one: Forge, root: User, client: Client
) -> None:
    row = trusting(root, one, "one", uses_user_info=True)
    user_create(username="dana", password=None, email="dana@example.com")
    one.user_info = {"sub": "u-9", "email": "dana@example.com"}

    answer = come_in(client, row, one, email="evil@example.com", email_verified=True)

    assert answer.status_code == 403
    assert not is_in(client)
    come_in(client, row, one, email="dana@example.com", email_verified=True)
    assert is_in(client)


def test_an_id_of_another_issuer_is_another_person(
    loopback: None, one: Forge, other: Forge, root: User, client: Client
) -> None:
    row = trusting(root, one, "one")
    user_create(username="dana", password=None, email="dana@example.com")
    come_in(Client(), row, one, sub="7", email="dana@example.com")
    values = {"discovery_url": discovery_of(other)}
    provider_change(actor=root, provider=row, values=values)

    answer = come_in(client, row, other, sub="7", email="evil@example.com")

    assert answer.status_code == 403
    assert not is_in(client)
    entry = AuditEntry.objects.get(verb="identity_provider.changed")
    assert entry.details["links_dropped"] == 1
    come_in(client, row, other, sub="8", email="dana@example.com")
    assert is_in(client)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param({"claim_id": "employee"}, 0, id="another claim of the id"),
        pytest.param({"issuer": "https://other.example"}, 0, id="another issuer"),
        pytest.param({"name": "Renamed", "claim_email": "mail"}, 1, id="neither"),
    ],
)
def test_links_go_with_what_the_ids_are_given_by(
    loopback: None,
    one: Forge,
    root: User,
    client: Client,
    change: dict[str, object],
    want: int,
) -> None:
    row = trusting(root, one, "one")
    user_create(username="dana", password=None, email="dana@example.com")
    come_in(client, row, one)

    provider_change(actor=root, provider=row, values=change)

    assert links_of(row).count() == want


def test_the_issuer_that_was_left_to_the_discovery_may_be_typed(
    loopback: None, one: Forge, root: User, client: Client
) -> None:
    row = trusting(root, one, "one")
    user_create(username="dana", password=None, email="dana@example.com")
    come_in(client, row, one)

    provider_change(actor=root, provider=row, values={"issuer": f"{one.address}/"})

    assert links_of(row).count() == 1


def test_metadata_of_another_provider_drops_links_and_other_certificates_do_not(
    saml: IdentityProvider, saml_server: Server, root: User, client: Client
) -> None:
    user_create(username="dana", password=None, email="dana@example.com")
    post_answer(client, saml, Assertion(saml_server, saml, request_id_of(client, saml)).signed())
    metadata = saml_server.metadata()
    certificate = key_pair_new("another")[0].replace("-----BEGIN CERTIFICATE-----", "")
    certificate = certificate.replace("-----END CERTIFICATE-----", "").strip()
    inside = re.compile(r"(<(?:\w+:)?X509Certificate>)[^<]+")
    renewed = inside.sub(lambda found: found[1] + certificate, metadata)
    entity = f"{saml_server.address}/metadata"

    provider_change(actor=root, provider=saml, values={"metadata": renewed})
    first = links_of(saml).count()
    other = renewed.replace(f'entityID="{entity}"', 'entityID="https://other.example"')
    provider_change(actor=root, provider=saml, values={"metadata": other})

    assert (first, links_of(saml).count()) == (1, 0)
    rows = AuditEntry.objects.filter(verb="identity_provider.changed").order_by("id")
    recorded = [(row.before.keys(), row.details.get("links_dropped")) for row in rows]
    assert recorded == [
        ({"metadata_sha256"}, None),
        ({"metadata_sha256", "provider_entity_id"}, 1),
    ]


def test_whoever_came_by_settings_of_before_is_not_linked(
    loopback: None, one: Forge, root: User
) -> None:
    before = trusting(root, one, "one")
    user_create(username="dana", password=None, email="dana@example.com")
    provider_change(actor=root, provider=before, values={"issuer": "https://other.example"})

    with pytest.raises(NotAllowed, match="changed meanwhile"):
        identity_accept(
            provider=before,
            identity=ProviderIdentity(uid="7", email="dana@example.com", is_email_verified=True),
        )

    assert not links_of(before).exists()


def test_the_form_says_how_many_would_be_recognised_again(
    loopback: None, one: Forge, root: User, client: Client
) -> None:
    row = trusting(root, one, "one")
    user_create(username="dana", password=None, email="dana@example.com")
    client.force_login(root)
    path = reverse("identity_edit", args=[row.slug])

    before = client.get(path)
    come_in(Client(), row, one)
    after = client.get(path)

    assert "known by it" not in text(before)
    assert "1 person is known by it." in text(after)
