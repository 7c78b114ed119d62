"""RPM is in English, whatever language a browser prefers."""

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User

GERMAN = {"accept-language": "de"}


@pytest.mark.django_db
def test_messages_of_forms_and_rest_are_english(client: Client, root: User) -> None:
    client.force_login(root)

    page = client.post(reverse("group_new"), headers=GERMAN).text
    answer = client.post("/api/v1/groups/", content_type="application/json", headers=GERMAN)

    assert "Enter a value for “Name”." in page
    assert "This field is required." in answer.text


@pytest.mark.django_db
def test_the_administration_site_is_english(client: Client, root: User) -> None:
    client.force_login(root)

    page = client.get(reverse("admin:index"), headers=GERMAN).text
    catalogue = client.get(reverse("admin:jsi18n"), headers=GERMAN).text

    assert '<html lang="en"' in page
    assert "Log out" in page
    assert "gettext" in catalogue
    assert "Januar" not in catalogue
