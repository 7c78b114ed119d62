"""The page of usage: figures, chart, periods, and what wrong addresses show."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from apps.core import clock
from apps.dashboard.cards.chart_parts import series_kinds
from apps.dashboard.cards.usage_report import change_text, chart_of, hours_text
from apps.policies.models import Policy
from apps.tasks.lifecycle.states import AttemptTier
from apps.usage.models import PolicyDay, PolicyHour
from apps.usage.selectors.labels import UsageGroup
from apps.usage.selectors.periods import UsagePeriod
from apps.usage.selectors.report import PER_GPU_H, usage_report
from tests.dashboard.conftest import ClientFor
from tests.dashboard.page_reader import text
from tests.page_words import words_on
from tests.people import Example

pytestmark = pytest.mark.django_db


@pytest.fixture
def used(example: Example) -> None:
    """Yesterday Dev held 30 GPU hours, 10 of them over quota; Research 6."""
    at = clock.now().replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    for policy, tier, hours in (
        (example.dev, AttemptTier.RESERVED, 20),
        (example.dev, AttemptTier.OVER_QUOTA, 10),
        (example.research, AttemptTier.RESERVED, 6),
    ):
        PolicyDay.objects.create(
            at=at, policy=policy, pool=example.h100, tier=tier, held=hours * PER_GPU_H, admitted=1
        )


def _policy(example: Example, number: int) -> Policy:
    return Policy.objects.create(name=f"p{number}", group=example.dev.group)


@pytest.mark.usefixtures("used")
def test_members_see_their_policy(alice: User, client_for: ClientFor) -> None:
    page = client_for(alice).get("/usage/")

    assert "GPU hours held 30" in text(page)
    assert "33 % of what was held" in text(page)
    assert words_on(page.content.decode(), "Dev", "Research") == ["Dev"]


@pytest.mark.usefixtures("used")
def test_the_chart_stacks_lines_and_says_what_a_day_had(example: Example, root: User) -> None:
    chart = chart_of(usage_report(root, UsagePeriod.last_days(3), UsageGroup.POLICY))

    _, yesterday, today = chart.bars
    assert yesterday.label.endswith("Dev 30 h, Research 6 h")
    assert [part.kind for part in yesterday.parts] == ["policy", "profile"]
    assert chart.ticks[-1].text == "40"
    assert [part.height for part in yesterday.parts] == [150.0, 30.0]
    assert today.parts == ()


@pytest.mark.usefixtures("used")
def test_below_a_single_top_the_chart_stacks_its_policies(example: Example, root: User) -> None:
    Policy.objects.filter(pk=example.research.pk).update(parent=example.dev)

    chart = chart_of(usage_report(root, UsagePeriod.last_days(3), UsageGroup.POLICY))

    assert chart.series == (("Research", "profile"), ("Dev itself", "policy"))
    assert chart.bars[1].label.endswith("Research 6 h, Dev itself 30 h")


@pytest.mark.usefixtures("used")
def test_all_but_the_largest_lines_are_one_in_the_chart(example: Example, root: User) -> None:
    row = PolicyDay.objects.latest("pk")
    for number in range(8):
        row.pk, row.policy = None, _policy(example, number)
        row.save()

    report = usage_report(root, UsagePeriod.last_days(3), UsageGroup.POLICY)

    series = chart_of(report).series
    assert (len(series), series[-1]) == (6, ("Smaller lines", "wait"))
    assert len(report.lines) == 10


@pytest.mark.usefixtures("used")
@pytest.mark.parametrize(
    "query",
    [
        "since=9999-12-31&until=0001-01-01",
        "since=0001-01-01",
        "until=0001-01-01",
        "since=2000-01-01",
        "by=moon&pool=x",
        "pool=999999999999999999999",
        "by=owner&pool=1",
    ],
)
def test_a_wrong_address_shows_the_usual_report(
    alice: User, client_for: ClientFor, query: str
) -> None:
    client = client_for(alice)

    for path in ("/usage/", "/usage/csv/"):
        assert client.get(f"{path}?{query}").status_code == 200


@pytest.mark.usefixtures("used")
def test_days_that_cannot_be_shown_stay_in_the_form(alice: User, client_for: ClientFor) -> None:
    page = client_for(alice).get("/usage/?since=2020-01-01&until=2026-01-01")

    assert "a report covers at most 366 days" in text(page)
    assert 'value="2020-01-01"' in page.content.decode()


@pytest.mark.usefixtures("used")
def test_the_file_has_what_the_page_shows(alice: User, client_for: ClientFor) -> None:
    answer = client_for(alice).get("/usage/csv/")

    assert answer.status_code == 200
    assert '"Dev"' in answer.content.decode()
    assert "Research" not in answer.content.decode()


@pytest.mark.usefixtures("used")
def test_the_number_of_queries_does_not_grow(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    client.get("/usage/")
    with CaptureQueriesContext(connection) as few:
        client.get("/usage/")
    row = PolicyDay.objects.latest("pk")
    for number in range(20):
        row.pk, row.policy = None, _policy(example, number)
        row.save()

    with CaptureQueriesContext(connection) as many:
        client.get("/usage/")

    assert len(many) == len(few)


def test_without_usage_the_page_says_so(alice: User, client_for: ClientFor) -> None:
    assert "No task of a policy that you see held GPUs in this time" in text(
        client_for(alice).get("/usage/")
    )


def test_figures_are_short() -> None:
    assert hours_text(0) == "0"
    assert hours_text(PER_GPU_H * 5 // 2) == "2.5"
    assert hours_text(PER_GPU_H * 12345) == "12,345"
    assert change_text(3, 0) == ""
    assert change_text(3, 2) == "+50 %"
    assert change_text(1, 2).endswith("50 %")
    assert change_text(2, 2) == "0 %"


def test_a_short_period_is_shown_by_hour(example: Example, root: User) -> None:
    at = datetime(2026, 3, 9, 21, tzinfo=UTC)
    days = UsagePeriod(at.date(), at.date() + timedelta(days=1))
    PolicyHour.objects.create(
        at=at, policy=example.dev, pool=example.h100, tier=AttemptTier.RESERVED, held=PER_GPU_H
    )

    chart = chart_of(usage_report(root, days, UsageGroup.POLICY))

    assert len(chart.bars) == 48
    assert chart.bars[21].label.endswith("21:00: Dev 1 h")
    assert [bar.text for bar in chart.bars if bar.text][1:3] == ["05:00", "10:00"]


def test_a_line_keeps_its_colour_while_amounts_change() -> None:
    assert series_kinds([7, 2, 11]) == series_kinds([11, 7, 2]) == series_kinds([2, 11, 7])
    assert series_kinds([11, 2])[2] == "policy"
    assert len(series_kinds(list(range(9)))) == 5
    assert series_kinds([None, "b", "a"]) == {"a": "policy", "b": "profile", None: "pool"}
