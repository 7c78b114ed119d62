"""Budgets on pages: set with the policy, and warned of where its costs are seen."""

from datetime import UTC
from decimal import Decimal

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import User
from apps.configuration.services.policies import policy_change
from apps.dashboard.cards.activity import load_activity
from apps.events.models import AuditEntry
from apps.policies.models import Policy, PolicySpending
from apps.usage.background import book_usage
from apps.usage.models import PolicyDay
from tests.dashboard.conftest import ClientFor
from tests.dashboard.page_reader import changed_form, errors_at, shown, text
from tests.people import Example

pytestmark = pytest.mark.django_db


def spend(policy: Policy, amount: int) -> None:
    PolicySpending.objects.create(
        policy=policy, at=timezone.now(), spent=amount * 1_000_000, noticed_budget=1
    )


def test_administrators_set_change_and_remove_a_budget(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client, path = client_for(root), reverse("policy_edit", args=[example.dev.pk])

    def save(**changes: str) -> object:
        form = changed_form(example.dev) | shown(client.get(path)) | {"save": "1"}
        return client.post(path, form | changes)

    def known() -> tuple[Decimal | None, bool]:
        example.dev.refresh_from_db()
        return example.dev.budget, example.dev.budget_stops

    save(budget="1000.50", budget_stops="on")
    assert known() == (Decimal("1000.5"), True)
    entry = AuditEntry.objects.filter(verb="policy.changed").latest("pk")
    assert (entry.before["budget"], entry.after["budget"]) == (None, "1000.5")
    assert (entry.before["budget_stops"], entry.after["budget_stops"]) == (False, True)

    assert "greater than" in errors_at("budget", save(budget="-1"))
    assert 'value="1000.5"' in client.get(path).content.decode()
    save(budget="", budget_stops="on")
    assert known() == (None, True)


def test_those_who_see_the_policy_are_warned(
    example: Example, root: User, alice: User, charlie: User, client_for: ClientFor
) -> None:
    month = timezone.now().astimezone(UTC)
    policy_change(actor=root, policy=example.dev, changes={"budget": Decimal(1000)})
    spend(example.dev, 799)
    words = f"Budget of Dev for {month:%B}: 799.00 of 1,000.00 EUR spent."
    card = reverse("policy_detail", args=[example.dev.pk])
    assert words in text(client_for(alice).get(card))
    assert "Budget of Dev" not in text(client_for(alice).get("/usage/"))

    PolicySpending.objects.update(spent=1_200_000_000)
    policy_change(actor=root, policy=example.dev, changes={"budget_stops": True})
    for client in (client_for(alice), client_for(root)):
        page = text(client.get("/usage/"))
        assert f"Budget of Dev for {month:%B}: 1,200.00 of 1,000.00 EUR spent. Tasks wait" in page
    assert "Budget of" not in text(client_for(charlie).get("/usage/"))


def test_the_overview_has_the_events(
    example: Example, root: User, alice: User, client_for: ClientFor
) -> None:
    policy_change(actor=root, policy=example.dev, changes={"budget": Decimal(1000)})
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    PolicyDay.objects.create(
        at=hour.replace(hour=0), policy=example.dev, pool=example.h100, cost=850_000_000
    )

    book_usage()

    [event] = [one for one in load_activity(root).events if "budget" in one.title]
    assert (event.title, event.name) == ("Policy budget low", "Dev")
    assert event.text.startswith("850.00 of 1,000.00 EUR spent in ")
    assert "Budget of Dev" in text(client_for(root).get(event.href))
    assert not load_activity(alice).events
