"""While passwords are off, the break-glass administrator can always use theirs."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from apps.accounts.models import ADMINS, IdentityProvider, User
from apps.accounts.services.identity import log_in_rules_change, mapping_set
from apps.accounts.services.identity_log_in import memberships_sync
from apps.accounts.services.people import user_create
from tests.configuration.site import form_of, url
from tests.dashboard.page_reader import text

pytestmark = pytest.mark.django_db

ApiAs = Callable[[User], APIClient]
PASSWORD = "correct horse battery"
WHY = "glass is the break-glass administrator"


@pytest.fixture
def glass(db: None) -> User:
    return user_create(username="glass", password=PASSWORD, groups=[ADMINS])


@pytest.fixture
def without_passwords(glass: User, root: User) -> None:
    switch(root, glass, allows_passwords=False)


@pytest.fixture
def site(root: User) -> Client:
    client = Client()
    client.force_login(root)
    return client


def switch(root: User, glass: User, *, allows_passwords: bool) -> None:
    log_in_rules_change(
        actor=root,
        allows_passwords=allows_passwords,
        break_glass=glass,
        requires_second_factor=False,
    )


def is_able(user: User) -> bool:
    """Whether they can sign in and administer."""
    now = User.objects.get(pk=user.pk)
    is_right = now.is_active and not now.is_service and now.has_usable_password()
    return is_right and now.groups.filter(name=ADMINS).exists()


@pytest.mark.usefixtures("without_passwords")
def test_rest_takes_nothing_from_the_one_with_a_password(
    glass: User, root: User, api_as: ApiAs
) -> None:
    api, admins = api_as(root), Group.objects.get(name=ADMINS)
    answers = [
        api.post(f"/api/v1/users/{glass.pk}/deactivate/"),
        api.patch(f"/api/v1/users/{glass.pk}/", {"groups": ["Users"]}),
        api.post(f"/api/v1/groups/{admins.pk}/members/remove/", {"users": ["glass"]}),
    ]

    for answer in answers:
        assert answer.status_code == 409, answer.json()
        assert WHY in answer.json()["detail"]
    assert is_able(glass)


@pytest.mark.usefixtures("without_passwords")
def test_the_pages_say_why(glass: User, site: Client) -> None:
    answer = site.post(reverse("person_deactivate", args=[glass.pk]))

    assert answer.status_code == 409
    assert WHY in text(answer)
    assert is_able(glass)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"is_active": None}, id="not active"),
        pytest.param({"groups": []}, id="in no group"),
    ],
)
@pytest.mark.usefixtures("without_passwords")
def test_the_admin_site_says_why(glass: User, site: Client, change: dict[str, Any]) -> None:
    address = url(User, "change", glass.pk)
    given = form_of(site, address) | change

    answer = site.post(
        address, {name: value for name, value in given.items() if value is not None}, follow=True
    )

    assert WHY in text(answer)
    assert is_able(glass)


@pytest.mark.usefixtures("without_passwords")
def test_the_admin_site_takes_them_out_of_no_group(glass: User, root: User, site: Client) -> None:
    admins = Group.objects.get(name=ADMINS)
    address = url(Group, "change", admins.pk)

    answer = site.post(address, form_of(site, address) | {"members": [root.pk]}, follow=True)

    assert WHY in text(answer)
    assert is_able(glass)


@pytest.mark.usefixtures("without_passwords")
def test_a_log_in_leaves_them_in_admins(oidc: IdentityProvider, glass: User) -> None:
    mapping_set(oidc, [("bosses", Group.objects.get(name=ADMINS))])

    joined, left = memberships_sync(provider=oidc, user=glass, external=[])

    assert (joined, left) == ([], [])
    assert is_able(glass)


def test_with_another_one_chosen_or_passwords_they_may_go(
    glass: User, root: User, api_as: ApiAs
) -> None:
    second = user_create(username="second", password=PASSWORD, groups=[ADMINS])
    switch(root, glass, allows_passwords=False)
    switch(root, second, allows_passwords=False)
    first = api_as(root).post(f"/api/v1/users/{glass.pk}/deactivate/")
    switch(root, second, allows_passwords=True)

    answer = api_as(root).post(f"/api/v1/users/{second.pk}/deactivate/")

    assert (first.status_code, answer.status_code) == (200, 200)


def test_others_come_and_go_as_before(
    glass: User, root: User, alice: User, api_as: ApiAs, without_passwords: None
) -> None:
    api, admins = api_as(root), Group.objects.get(name=ADMINS)

    added = api.post(f"/api/v1/groups/{admins.pk}/members/", {"users": ["alice"]})
    removed = api.post(f"/api/v1/groups/{admins.pk}/members/remove/", {"users": ["alice"]})
    gone = api.post(f"/api/v1/users/{alice.pk}/deactivate/")

    assert [one.status_code for one in (added, removed, gone)] == [200, 200, 200]
