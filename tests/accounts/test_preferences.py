"""Preferences of people, and their effect on tasks."""

from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.accounts.services.preferences import (
    PATTERN_LENGTH,
    PATTERN_STARS,
    PATTERNS,
    preferences_change,
)
from apps.core.keyring import HIDDEN
from apps.events.models import AuditEntry
from tests.configuration.site import form_of
from tests.people import Example
from tests.tasks.api.test_tasks import TASKS, post, wanted

pytestmark = pytest.mark.django_db

PREFERENCES = "/api/v1/preferences/"
As = Callable[[User], APIClient]


def test_variables_that_somebody_hides_are_shown_to_nobody(
    api_as: As, alice: User, root: User, charlie: User, example: Example
) -> None:
    body = wanted(example, environment={"WANDB_RUN": "abc", "SEED": "7"})
    task_id = post(api_as(alice), body=body).json()["id"]

    answer = api_as(alice).patch(PREFERENCES, {"redacted_variables": ["wandb_*"]}, format="json")

    assert answer.status_code == 200, answer.content
    assert answer.json() == {
        "redacted_variables": ["wandb_*"],
        "always_redacted_variables": settings.RPM_REDACTED_VARIABLES,
    }
    for reader in (alice, root):
        environment = api_as(reader).get(f"{TASKS}{task_id}/").json()["environment"]
        assert environment == {"WANDB_RUN": HIDDEN, "SEED": "7"}
    # It is alice's own list: nobody else's tasks, and nobody else changes it.
    assert api_as(charlie).get(PREFERENCES).json()["redacted_variables"] == []


@pytest.mark.parametrize(
    "at_bound",
    [
        [f"A{number}" for number in range(PATTERNS)],
        ["A" * PATTERN_LENGTH],
        ["*A" * PATTERN_STARS],
    ],
)
def test_a_list_of_patterns_is_taken_at_each_bound(alice: User, at_bound: list[str]) -> None:
    preferences_change(user=alice, redacted_variables=at_bound)

    alice.refresh_from_db()
    assert alice.redacted_variables == at_bound


@pytest.mark.parametrize(
    "given",
    [
        "WANDB",
        ["a b"],
        [""],
        [1.5],
        ["A" * (PATTERN_LENGTH + 1)],
        [f"A{number}" for number in range(PATTERNS + 1)],
        ["*" + "A*" * PATTERN_STARS],
        ["*" + "?A" * 30 + "B*C*"],
        None,
    ],
)
def test_a_list_that_will_not_do_is_refused(api_as: As, alice: User, given: Any) -> None:
    answer = api_as(alice).patch(PREFERENCES, {"redacted_variables": given}, format="json")

    assert answer.status_code == 400
    assert all(name.startswith("redacted_variables") for name in answer.json()["fields"])
    alice.refresh_from_db()
    assert alice.redacted_variables == []


def test_who_is_not_signed_in_has_no_preferences(db: None) -> None:
    assert APIClient().get(PREFERENCES).status_code == 401


def test_administrators_edit_the_list_of_others(client: Client, root: User, alice: User) -> None:
    client.force_login(root)
    page = reverse("admin:accounts_user_change", args=[alice.pk])
    data = form_of(client, page)

    refused = client.post(page, {**data, "redacted_variables": '["a b"]'})
    taken = client.post(page, {**data, "redacted_variables": '["WANDB_*"]'})

    assert (refused.status_code, taken.status_code) == (200, 302)
    alice.refresh_from_db()
    assert alice.redacted_variables == ["WANDB_*"]
    emptied = {**form_of(client, page), "redacted_variables": ""}
    assert client.post(page, emptied).status_code == 302
    alice.refresh_from_db()
    assert alice.redacted_variables == []


def test_the_audit_log_holds_a_bounded_part_of_long_lists(api_as: As, alice: User) -> None:
    long = [f"V{number}_{'x' * 50}" for number in range(20)]
    api_as(alice).patch(PREFERENCES, {"redacted_variables": ["OLD", "KEPT"]}, format="json")

    for _ in range(2):
        body = {"redacted_variables": ["KEPT", *long[1:]]}
        assert api_as(alice).patch(PREFERENCES, body, format="json").status_code == 200

    entry, _ = AuditEntry.objects.filter(verb="person.preferences").order_by("-id")
    assert entry.before == {"redacted_variables": ["OLD"]}
    assert entry.after == {"redacted_variables": [*long[1:11], "and 9 more"]}


def test_patterns_from_before_the_bounds_are_kept_and_can_be_removed(
    api_as: As, alice: User
) -> None:
    old = ["A" * (PATTERN_LENGTH + 1), "*B*C*D", *(f"E{number}" for number in range(PATTERNS))]
    User.objects.filter(pk=alice.pk).update(redacted_variables=old)

    for wanted_list in (old, old[:-1], [*old[:-2], "NEW_*"], old[:1]):
        body = {"redacted_variables": wanted_list}
        answer = api_as(alice).patch(PREFERENCES, body, format="json")
        assert answer.status_code == 200, answer.content
        assert answer.json()["redacted_variables"] == wanted_list
    for more in ("F" * (PATTERN_LENGTH + 1), "*B*C*D"):
        body = {"redacted_variables": [*old[:1], more]}
        assert api_as(alice).patch(PREFERENCES, body, format="json").status_code == 400


def test_a_list_from_before_the_bound_does_not_grow(api_as: As, alice: User) -> None:
    old = [f"E{number}" for number in range(PATTERNS + 1)]
    User.objects.filter(pk=alice.pk).update(redacted_variables=old)

    answer = api_as(alice).patch(PREFERENCES, {"redacted_variables": [*old, "F"]}, format="json")

    assert answer.status_code == 400


def test_administrators_keep_patterns_of_others_from_before_the_bounds(
    client: Client, root: User, alice: User
) -> None:
    old = ["A" * (PATTERN_LENGTH + 1), "B"]
    User.objects.filter(pk=alice.pk).update(redacted_variables=old)
    client.force_login(root)
    page = reverse("admin:accounts_user_change", args=[alice.pk])

    answer = client.post(page, {**form_of(client, page), "first_name": "Alicia"})

    assert answer.status_code == 302
    alice.refresh_from_db()
    assert (alice.first_name, alice.redacted_variables) == ("Alicia", old)
