"""By which claims somebody is taken for an account here, and by which not."""

from collections.abc import Iterator
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.test import Client

from apps.accounts.models import IdentityProvider, User
from apps.accounts.services.identity import provider_change, provider_create
from apps.accounts.services.people import user_create
from tests.dashboard.reading import text
from tests.identity.conftest import oidc_values
from tests.identity.forging import Forge, running_forge
from tests.identity.providers import Server
from tests.identity.test_forged import is_in, with_token

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
    discovery = f"{forge.address}/.well-known/openid-configuration"
    values = oidc_values(Server(0), name=slug, discovery_url=discovery, **changes)
    return provider_create(actor=root, preset="oidc", slug=slug, values=values)


def come_in(client: Client, row: IdentityProvider, forge: Forge, **claims: Any) -> Any:
    """The provider says this about whoever logs in."""
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
