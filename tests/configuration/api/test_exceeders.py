"""Users and groups that may exceed a policy's limit, through REST."""

import pytest

from apps.accounts.models import User
from tests.configuration.api.common import V1, SignIn
from tests.people import Example
from tests.tenants import Organisations

pytestmark = pytest.mark.django_db


def test_an_administrator_says_who_may_exceed_a_limit(
    api_as: SignIn, root: User, alice: User, example: Example
) -> None:
    address = f"{V1}/policies/{example.dev.pk}/exceeders/"
    wanted = {"users": ["alice"], "groups": ["research"]}
    assert api_as(root).get(address).json() == {"users": [], "groups": []}

    set_ = api_as(root).put(address, wanted, format="json")

    assert (set_.status_code, set_.json()) == (200, wanted)
    assert api_as(root).get(address).json() == wanted


@pytest.mark.parametrize(
    ("body", "field"),
    [
        pytest.param({"users": ["nobody"], "groups": []}, "users", id="an unknown person"),
        pytest.param({"users": [], "groups": ["none"]}, "groups", id="an unknown group"),
        pytest.param({"users": []}, "groups", id="half of it"),
    ],
)
def test_what_is_not_known_is_named(
    api_as: SignIn, root: User, example: Example, body: object, field: str
) -> None:
    answer = api_as(root).put(f"{V1}/policies/{example.dev.pk}/exceeders/", body, format="json")

    assert (answer.status_code, list(answer.json()["fields"])) == (400, [field])


def test_nobody_else_learns_it_or_sets_it(
    api_as: SignIn, bob: User, charlie: User, example: Example
) -> None:
    address = f"{V1}/policies/{example.dev.pk}/exceeders/"
    body = {"users": ["bob"], "groups": []}

    assert api_as(bob).get(address).status_code == 403
    assert api_as(bob).put(address, body, format="json").status_code == 403
    assert api_as(charlie).get(address).status_code == 404
    assert api_as(charlie).put(address, body, format="json").status_code == 404


@pytest.mark.parametrize("field", ["users", "groups"])
def test_nobody_of_another_tenant_is_named(
    api_as: SignIn, root: User, organisations: Organisations, field: str
) -> None:
    rival = organisations.rival
    name = {"users": rival.member.username, "groups": rival.group.name}[field]
    address = f"{V1}/policies/{organisations.acme.team.pk}/exceeders/"
    body = {"users": [], "groups": [], field: [name]}

    answer = api_as(root).put(address, body, format="json")

    assert answer.status_code == 400
    assert answer.json()["fields"] == {field: f"{name} belongs to another tenant"}
    assert api_as(root).get(address).json() == {"users": [], "groups": []}
