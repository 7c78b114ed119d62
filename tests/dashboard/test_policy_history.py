"""What a policy's page tells of its use over time, and of what others do to it meanwhile."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import User
from apps.configuration.services.policies import policy_change, policy_create
from apps.configuration.services.pools import policy_pause
from apps.dashboard.cards.sparklines import Sparkline
from apps.dashboard.render import card_render
from apps.policies.models import Policy
from apps.tasks.models import Attempt
from apps.usage.services.sums import usage_book
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.dashboard.page_reader import text
from tests.page_words import words_on
from tests.people import Example

pytestmark = pytest.mark.django_db


def figures(client: Client, policy: Policy, query: str = "") -> list[str]:
    """The first column of the table behind the chart."""
    page = client.get(reverse("policy_history", args=[policy.pk]) + query).content.decode()
    rows = re.findall(r'<td class="whitespace-nowrap">.*?</td>\s*<td class="r">(.*?)</td>', page)
    return [str(one) for one in rows]


def test_the_history_of_use_is_that_of_the_attempts(
    example: Example, alice: User, client_for: ClientFor, submit: Submit, run_in: RunIn
) -> None:
    client = client_for(alice)
    before = figures(client, example.dev)
    now = timezone.now()
    earlier = run_in(submit(alice, "earlier"), example.h100, since=now - timedelta(hours=40))
    Attempt.objects.filter(pk=earlier.pk).update(
        state="finished", ended_at=now - timedelta(hours=30)
    )
    run_in(submit(alice, "runs"), example.h100, since=now - timedelta(hours=12))
    usage_book()

    after = figures(client, example.dev)

    assert before == []
    assert len(after) == 96
    assert (after[:47], after[49:]) == (["0"] * 47, ["4"] * 47)
    page = client.get(reverse("policy_history", args=[example.dev.pk])).content.decode()
    assert "GPUs held in 24 hours: mean 2, highest 4" in " ".join(page.split())


def test_another_time_can_be_chosen(
    example: Example, alice: User, client_for: ClientFor, submit: Submit, run_in: RunIn
) -> None:
    client, path = client_for(alice), reverse("policy_history", args=[example.dev.pk])
    since = timezone.now() - timedelta(days=40)
    run_in(submit(alice, "runs"), example.h100, since=since)
    # As each minute in an installation.
    while usage_book():
        pass

    pages = {hours: text(client.get(path, {"hours": hours})) for hours in ("3", "168", "720", "x")}

    for hours, span in {"3": "3 hours", "168": "7 days", "720": "30 days", "x": "24 hours"}.items():
        assert f"GPUs held in {span}: mean 4, highest 4" in " ".join(pages[hours].split())
    assert figures(client, example.dev, "?hours=720") == ["4"] * 96


def test_the_history_begins_when_the_policies_have_something_to_tell(
    example: Example,
    alice: User,
    charlie: User,
    client_for: ClientFor,
    submit: Submit,
    run_in: RunIn,
) -> None:
    now = timezone.now()
    run_in(submit(alice, "first"), example.h100, since=now - timedelta(minutes=40))
    of_dev, of_research = client_for(alice), client_for(charlie)

    own = text(of_dev.get(reverse("policy_history", args=[example.dev.pk])))

    assert "GPUs held in 40 min: mean 4, highest 4" in " ".join(own.split())
    assert figures(of_dev, example.dev) == ["4"] * 96
    assert "Last 40 min" in text(of_dev.get("/policies/"))
    line = Sparkline.of(0, [4000] * 48).line
    assert line in of_dev.get("/policies/sparklines/").content.decode()
    # When others began is not for everyone to know.
    assert "Last 24 hours" in text(of_research.get("/policies/"))


def test_the_parts_of_a_policy_are_stacked_and_what_is_above_it_is_not(
    example: Example,
    root: User,
    alice: User,
    charlie: User,
    dev_group: Group,
    client_for: ClientFor,
    submit: Submit,
    run_in: RunIn,
) -> None:
    institute = policy_create(actor=root, name="Institute", group=dev_group)
    top = policy_create(actor=root, name="Laboratory", group=dev_group, parent=institute)
    for policy in (example.dev, example.research):
        policy_change(actor=root, policy=policy, changes={"parent": top})
    run_in(submit(alice, "ours"), example.h100)
    run_in(submit(charlie, "theirs", queue=example.research_queue.name), example.h100)

    pages = [
        client_for(user).get(reverse("policy_history", args=[top.pk])).content.decode()
        for user in (root, alice)
    ]

    names = ("Dev", "Research", "Institute", "Not visible to you")
    assert words_on(pages[0], *names) == ["Dev", "Research"]
    assert words_on(pages[1], *names) == ["Dev", "Not visible to you"]


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
