"""People, and the accounts that are none."""

import pytest
from django.test import Client

from apps.accounts.models import ADMINS, User
from apps.accounts.services.people import setup_token_create, user_create
from apps.core.errors import BadInput

pytestmark = pytest.mark.django_db

PASSWORD = "Correct-horse-7-battery"


@pytest.mark.parametrize(
    "username",
    [
        pytest.param("a b", id="a sign that no name may have"),
        pytest.param("ROOT" * 40, id="too long"),
        pytest.param("root", id="taken"),
    ],
)
def test_a_name_that_will_not_do_is_named(root: User, username: str) -> None:
    with pytest.raises(BadInput) as refused:
        user_create(username=username, password=PASSWORD)

    assert set(refused.value.fields) == {"username"}


def test_the_set_up_page_says_what_is_wrong_with_a_name(client: Client) -> None:
    asked = {"token": setup_token_create(), "password": PASSWORD}

    wrong = client.post("/set-up/", {**asked, "username": "a b"})
    right = client.post("/set-up/", {**asked, "username": "chief"})

    assert wrong.status_code == 400
    assert "Enter a valid username" in wrong.content.decode()
    assert right.status_code == 302
    assert User.objects.get().groups.filter(name=ADMINS).exists()


def test_a_service_account_has_no_log_in_although_somebody_gave_it_a_password(
    client: Client, root: User
) -> None:
    user_create(username="person", password=PASSWORD)
    service = user_create(username="robot", password=PASSWORD)
    User.objects.filter(pk=service.pk).update(is_service=True)

    assert client.login(username="person", password=PASSWORD)
    assert not client.login(username="robot", password=PASSWORD)
