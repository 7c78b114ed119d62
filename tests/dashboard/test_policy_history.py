"""What a policy's page tells of its use over time, and of what others do to it meanwhile."""

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import User
from apps.configuration.services.pools import policy_pause
from apps.dashboard.cards.sparklines import Sparkline
from apps.dashboard.render import card_render
from apps.tasks.models import Attempt
from apps.usage.services.sums import usage_book
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.dashboard.page_reader import text
from tests.people import Example

pytestmark = pytest.mark.django_db


def test_the_history_of_use_is_that_of_the_attempts(
    example: Example, alice: User, client_for: ClientFor, submit: Submit, run_in: RunIn
) -> None:
    client, path = client_for(alice), reverse("policy_usage", args=[example.dev.pk])
    before = client.get(path).json()
    now = timezone.now()
    earlier = run_in(submit(alice, "earlier"), example.h100, since=now - timedelta(hours=40))
    Attempt.objects.filter(pk=earlier.pk).update(
        state="finished", ended_at=now - timedelta(hours=30)
    )
    attempt = run_in(submit(alice, "runs"), example.h100)
    attempt.allocated_at = attempt.allocated_at - timedelta(hours=12)
    attempt.save()

    after = client.get(path).json()

    assert before["gpu"] == [0.0] * 96
    assert len(after["at"]) == 96
    assert after["gpu"][:47] == [0.0] * 47
    assert after["gpu"][49:] == [4.0] * 47
    assert (after["mean"], after["highest"]) == ("2", "4")
    assert (after["span"], after["step"]) == ("24 hours", "15 min")


def test_another_time_can_be_chosen(
    example: Example, alice: User, client_for: ClientFor, submit: Submit, run_in: RunIn
) -> None:
    client, path = client_for(alice), reverse("policy_usage", args=[example.dev.pk])
    since = timezone.now() - timedelta(days=40)
    run_in(submit(alice, "runs"), example.h100, since=since)
    # As each minute in an installation.
    usage_book()

    spans = {hours: client.get(path, {"hours": hours}).json() for hours in ("3", "168", "720", "x")}

    assert [one["span"] for one in spans.values()] == ["3 hours", "7 days", "30 days", "24 hours"]
    assert spans["720"]["step"] == "7 h 30 min"
    assert spans["720"]["gpu"] == [4.0] * 96


def test_the_history_begins_when_the_installation_has_something_to_tell(
    example: Example, root: User, alice: User, client_for: ClientFor, submit: Submit, run_in: RunIn
) -> None:
    since = timezone.now() - timedelta(minutes=40)
    run_in(submit(alice, "first"), example.h100, since=since)
    client = client_for(root)

    own = client.get(reverse("policy_usage", args=[example.dev.pk])).json()
    other = client.get(reverse("policy_usage", args=[example.research.pk])).json()

    assert (own["span"], own["step"], own["mean"]) == ("40 min", "25 s", "4")
    assert own["gpu"] == [4.0] * 96
    assert (other["span"], other["gpu"]) == ("40 min", [0.0] * 96)
    assert "Last 40 min" in text(client.get("/policies/"))
    assert Sparkline.of(0, [4000] * 48).line in client.get("/policies/sparklines/").content.decode()


def test_who_edits_a_policy_sees_at_once_that_another_paused_it(
    example: Example, root: User, alice: User, client_for: ClientFor
) -> None:
    key = str(example.dev.pk)
    before = card_render("policy_pause", key, root)
    policy_pause(actor=root, policy=example.dev, reason="power cut")
    after = card_render("policy_pause", key, root)

    assert before is not None
    assert after is not None
    assert ("Pause…" in before.html, "Resume" in before.html) == (True, False)
    assert ("Pause…" in after.html, "power cut" in after.html) == (False, True)
    assert after.topics == (f"policy.{key}",)
    assert card_render("policy_pause", key, alice) is None
    page = client_for(root).get(f"/policies/{key}/edit/").content.decode()
    assert 'data-live="policy_pause:' in page
    assert 'form="policy-resume"' in page
