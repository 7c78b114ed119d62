"""Views of the list of policies: filtered, flat, with its sparklines."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import User
from apps.configuration.services.policies import policy_change, policy_create
from apps.dashboard.cards.sparklines import Sparkline
from apps.policies.models import Policy
from apps.tasks.models import Attempt
from apps.usage.services.sums import usage_book
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.dashboard.page_reader import folded, text
from tests.dashboard.test_policies import names_in_order
from tests.page_words import words_on
from tests.people import Example

pytestmark = pytest.mark.django_db

SPARKLINES = "/policies/sparklines/"


@pytest.fixture
def laboratory(example: Example, root: User, dev_group: Group) -> Policy:
    """A policy above Research."""
    top = policy_create(actor=root, name="Laboratory", group=dev_group)
    policy_change(actor=root, policy=example.research, changes={"parent": top})
    return top


def curves(client: Client) -> dict[int, str]:
    """The line of each policy."""
    html = folded(client.get(SPARKLINES).content.decode())
    found = re.findall(r'id="sparkline-(\d+)".*?class="sparkline-line" d="([^"]+)"', html)
    return {int(pk): line for pk, line in found}


def test_the_list_is_filtered_and_keeps_the_parents(
    example: Example,
    laboratory: Policy,
    root: User,
    charlie: User,
    client_for: ClientFor,
    submit: Submit,
    run_in: RunIn,
) -> None:
    submit(charlie, "waits", queue=example.research_queue.name)
    for number in range(3):
        task = submit(charlie, f"r{number}", queue=example.research_queue.name)
        run_in(task, example.h100)
    client = client_for(root)

    page = text(client.get(f"{reverse('policy_list')}?only=limit"))

    assert names_in_order(client, "only=waiting") == ["Laboratory", "Research"]
    assert names_in_order(client, "only=over&view=flat") == ["Laboratory", "Research"]
    assert "With waiting 2" in page
    assert "No policy matches this filter" in page
    assert names_in_order(client, "only=nonsense") == ["Dev", "Laboratory", "Research"]


def test_the_flat_list_puts_the_largest_first_whoever_is_above(
    example: Example,
    laboratory: Policy,
    root: User,
    charlie: User,
    client_for: ClientFor,
    submit: Submit,
) -> None:
    submit(charlie, "waits", queue=example.research_queue.name)
    client = client_for(root)

    page = client.get(f"{reverse('policy_list')}?view=flat&sort=waiting").content.decode()

    assert names_in_order(client, "view=flat&name=research") == ["Research"]
    assert names_in_order(client, "view=flat&sort=waiting")[-1] == "Dev"
    assert words_on(page, "depth-1") == []
    assert "below Laboratory" in page


def test_a_curve_shows_the_last_day_of_a_policy_and_of_those_below_it(
    example: Example,
    laboratory: Policy,
    root: User,
    charlie: User,
    client_for: ClientFor,
    submit: Submit,
    run_in: RunIn,
) -> None:
    queue, now = example.research_queue.name, timezone.now()
    earlier = run_in(submit(charlie, "a", queue=queue), example.h100, since=now - timedelta(days=2))
    Attempt.objects.filter(pk=earlier.pk).update(state="finished", ended_at=now - timedelta(days=1))
    run_in(submit(charlie, "b", queue=queue), example.h100, since=now - timedelta(hours=12))
    # As each minute in an installation.
    usage_book()

    found = curves(client_for(root))

    assert found[example.dev.pk] == Sparkline.of(0, [0] * 48).line
    assert found[example.research.pk] == found[laboratory.pk]
    assert found[laboratory.pk].startswith("M0 22L")
    assert found[laboratory.pk].endswith("L96 2")


def test_curves_are_for_those_who_see_the_policy(
    example: Example, alice: User, charlie: User, client_for: ClientFor
) -> None:
    assert set(curves(client_for(alice))) == {example.dev.pk}
    assert set(curves(client_for(charlie))) == {example.research.pk}
    assert Client().get(SPARKLINES).status_code == 302


def test_curves_take_the_same_queries_however_many_there_are(
    example: Example, root: User, dev_group: Group, client_for: ClientFor
) -> None:
    client = client_for(root)

    def asked() -> int:
        client.get(SPARKLINES)
        with CaptureQueriesContext(connection) as queries:
            client.get(SPARKLINES)
        return len(queries)

    few = asked()
    for number in range(20):
        policy_create(actor=root, name=f"team {number}", group=dev_group)

    assert asked() == few
