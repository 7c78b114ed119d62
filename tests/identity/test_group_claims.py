"""Groups that a provider did not send are not taken for groups that the user left."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client

from apps.accounts.identity.claims import GROUPS
from apps.accounts.models import IdentityProvider, User
from apps.accounts.services.identity import provider_change, provider_create
from apps.accounts.services.people import user_create
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

LINK = "http://schemas.microsoft.com/claims/groups.link"


@dataclass(frozen=True)
class Telling(Assertion):
    """An assertion with one more attribute."""

    attribute: str = ""

    def xml(self) -> str:
        more = (
            f'<saml:Attribute Name="{self.attribute}"><saml:AttributeValue>https://graph.example/'
            "</saml:AttributeValue></saml:Attribute></saml:AttributeStatement>"
        )
        return super().xml().replace("</saml:AttributeStatement>", more)


@pytest.fixture(scope="module")
def forge() -> Iterator[Forge]:
    with running_forge() as made:
        yield made


@pytest.fixture
def forged(loopback: None, forge: Forge, root: User, dev_group: Group) -> IdentityProvider:
    values = oidc_values(
        Server(0),
        discovery_url=f"{forge.address}/.well-known/openid-configuration",
        syncs_groups=True,
    )
    return provider_create(
        actor=root, preset="oidc", slug="forge", values=values, mapping=[("ml", dev_group)]
    )


@pytest.fixture
def dana(db: None, dev_group: Group) -> User:
    return user_create(
        username="dana", password=None, email="dana@example.com", groups=[dev_group.name]
    )


def groups_of(user: User) -> set[str]:
    return set(user.groups.values_list("name", flat=True))


@pytest.mark.parametrize(
    ("claims", "want"),
    [
        pytest.param({"hasgroups": True}, "did not list your groups", id="only that there are"),
        pytest.param(
            {"_claim_names": {"groups": "src1"}}, "did not list your groups", id="elsewhere"
        ),
        pytest.param(
            {"groups": [f"g-{number}" for number in range(GROUPS)] + ["ml"]},
            f"you are in {GROUPS + 1} groups",
            id="more than are read",
        ),
    ],
)
def test_who_is_in_too_many_groups_leaves_none(
    forged: IdentityProvider,
    forge: Forge,
    dana: User,
    client: Client,
    claims: dict[str, Any],
    want: str,
) -> None:
    answer = with_token(
        client, forged, forge, lambda forge, nonce: forge.sign(forge.claims(nonce, **claims))
    )

    assert answer.status_code == 403
    assert want in text(answer)
    assert not is_in(client)
    assert groups_of(dana) == {"Users", "dev"}


def test_as_many_groups_as_are_read_let_in(
    forged: IdentityProvider, forge: Forge, dana: User, client: Client
) -> None:
    most = ["ml", *(f"g-{number}" for number in range(GROUPS - 1))]

    with_token(
        client, forged, forge, lambda forge, nonce: forge.sign(forge.claims(nonce, groups=most))
    )

    assert is_in(client)
    assert groups_of(dana) == {"Users", "dev"}


def test_a_link_in_the_place_of_groups_lets_nobody_in(
    saml: IdentityProvider,
    saml_server: Server,
    root: User,
    dana: User,
    dev_group: Group,
    client: Client,
) -> None:
    mapping = [("ml", dev_group)]
    provider_change(actor=root, provider=saml, values={"syncs_groups": True}, mapping=mapping)
    right = Telling(saml_server, saml, request_id_of(client, saml), attribute=LINK)

    answer = post_answer(client, saml, right.signed())

    assert answer.status_code == 403
    assert "did not list your groups" in text(answer)
    assert groups_of(dana) == {"Users", "dev"}


def test_a_link_means_nothing_where_groups_are_not_synchronised(
    saml: IdentityProvider, saml_server: Server, dana: User, client: Client
) -> None:
    right = Telling(saml_server, saml, request_id_of(client, saml), attribute=LINK)

    post_answer(client, saml, right.signed())

    assert is_in(client)
