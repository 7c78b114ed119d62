"""The chart of the overview: what is stacked, its geometry, and whose use each reader sees."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import User
from apps.configuration.services.policies import policy_change, policy_create
from apps.dashboard.cards.history_chart import (
    HistoryQuery,
    load_history_chart,
    series_of,
)
from apps.dashboard.cards.history_picture import HistoryChart, Series, history_chart
from apps.dashboard.cards.history_subjects import overview_subject
from apps.dashboard.cards.time_axis import time_marks
from apps.policies.models import Pool
from apps.tasks.lifecycle.states import AttemptState
from apps.tasks.models import Attempt, PastTier, Task
from apps.tasks.services.queue_order import task_change_queue
from apps.usage.selectors.labels import UsageGroup
from apps.usage.selectors.usage_history import HistoryScope, SplitHistory
from apps.usage.selectors.used_history import UsedHistory
from apps.usage.selectors.waiting_history import waiting_history
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.dashboard.page_reader import text
from tests.page_words import words_on
from tests.people import Example

pytestmark = pytest.mark.django_db
AT = datetime(2026, 3, 9, 12, tzinfo=UTC)
UNKNOWN, UTC_ZONE = UsedHistory((), None), ZoneInfo("UTC")
NINE = [f"pool {number}" for number in range(9)]


@pytest.fixture
def held(
    example: Example, alice: User, charlie: User, submit: Submit, run_in: RunIn
) -> list[Attempt]:
    """Dev has held 4 GPUs of the bare metal for 30 hours, Research 4 H100 for 12."""
    now = timezone.now()
    research = submit(charlie, "theirs", queue=example.research_queue.name)
    return [
        run_in(submit(alice, "ours"), example.bare_metal, since=now - timedelta(hours=30)),
        run_in(research, example.h100, since=now - timedelta(hours=12)),
    ]


def chart_for(user: User, query: str = "") -> HistoryChart:
    subject = overview_subject(user)
    found = load_history_chart(user, HistoryQuery.parse(query), subject)
    assert found is not None
    return found


@pytest.mark.usefixtures("held")
def test_an_administrator_sees_all_policies_and_the_capacity(root: User) -> None:
    chart = chart_for(root)

    assert [(one.label, one.kind) for one in chart.series] == [
        ("Dev", "policy"),
        ("Research", "profile"),
    ]
    assert (chart.span, chart.mean, chart.highest) == ("24 hours", "6", "8")
    assert chart.rows[0][1] == ("4", "0", "0")
    assert chart.rows[-1][1] == ("4", "4", "0")
    assert chart.capacity is not None
    assert len(chart.steps) == 96


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("by", ["policy", "tier", "pool"])
def test_a_member_sees_their_policy_alone(
    alice: User, charlie: User, client_for: ClientFor, by: str
) -> None:
    chart = chart_for(alice, f"by={by}")

    assert chart.highest == "4"
    assert chart.capacity is None
    page = client_for(charlie).get(f"/overview/history/?by={by}")
    assert words_on(page.content.decode(), "Dev", "Bare Metal", "H100", "Capacity now") == []


@pytest.mark.usefixtures("example", "held")
def test_somebody_without_policies_sees_no_chart(client_for: ClientFor) -> None:
    outsider = User.objects.create(username="outsider")

    assert "/overview/history/" not in client_for(outsider).get("/").content.decode()
    assert "No task that you see held GPUs" in text(client_for(outsider).get("/overview/history/"))


@pytest.mark.usefixtures("held")
def test_pools_are_stacked_for_those_who_see_them(
    example: Example, root: User, alice: User
) -> None:
    assert [one.label for one in chart_for(root, "by=pool").series] == [
        example.bare_metal.name,
        example.h100.name,
    ]
    assert [one.label for one in chart_for(alice, "by=pool").series] == ["Not visible to you"]


def test_a_tier_counts_for_as_long_as_the_attempt_had_it(root: User, held: list[Attempt]) -> None:
    dev, research = held
    now = timezone.now()
    Attempt.objects.filter(pk=dev.pk).update(tier="over_quota")
    Attempt.objects.filter(pk=research.pk).update(tier="reserved")
    PastTier.objects.create(attempt=dev, tier="reserved", until=now - timedelta(hours=6))
    PastTier.objects.create(attempt=dev, tier="", until=now - timedelta(hours=29))

    chart = chart_for(root, "by=tier")

    assert [(one.label, one.kind) for one in chart.series] == [
        ("Reserved", "use"),
        ("Over quota", "over"),
    ]
    assert [row[1] for row in (chart.rows[0], chart.rows[60], chart.rows[-1])] == [
        ("4", "0", "0"),
        ("8", "0", "0"),
        ("4", "4", "0"),
    ]


@pytest.mark.usefixtures("held")
def test_below_a_single_top_policy_its_parts_are_stacked(
    example: Example, root: User, dev_group: Group
) -> None:
    top = policy_create(actor=root, name="Laboratory", group=dev_group)
    for policy in (example.dev, example.research):
        policy_change(actor=root, policy=policy, changes={"parent": top})

    assert [one.label for one in chart_for(root).series] == ["Dev", "Research"]


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize(
    "query", ["", "?hours=3&by=tier", "?hours=720&by=pool", "?hours=x&by=moon"]
)
def test_the_page_has_links_for_spans_and_groups(
    root: User, client_for: ClientFor, query: str
) -> None:
    page = client_for(root).get(f"/overview/history/{query}").content.decode()

    assert page.count('class="seg"') >= 2
    assert page.count('aria-current="true"') == 2
    assert 'role="img"' in page


def test_the_number_of_queries_does_not_grow(
    example: Example, root: User, alice: User, client_for: ClientFor, submit: Submit, run_in: RunIn
) -> None:
    run_in(submit(alice, "first"), example.h100)
    client = client_for(root)
    client.get("/overview/history/?by=tier")
    with CaptureQueriesContext(connection) as few:
        client.get("/overview/history/?by=tier")
    for number in range(8):
        attempt = run_in(submit(alice, f"t{number}"), example.h100)
        PastTier.objects.create(attempt=attempt, tier="reserved", until=timezone.now())

    with CaptureQueriesContext(connection) as many:
        client.get("/overview/history/?by=tier")

    assert len(many) == len(few)


# --- what waited -------------------------------------------------------------------------------


def test_what_waits_stands_above_what_is_held(
    example: Example, root: User, alice: User, charlie: User, submit: Submit, held: list[Attempt]
) -> None:
    now = timezone.now()
    waiting = submit(alice, "waits")
    Task.objects.filter(pk=waiting.pk).update(submitted_at=now - timedelta(hours=6))
    Task.objects.filter(pk=held[1].task_id).update(submitted_at=now - timedelta(hours=18))

    chart = chart_for(root)

    figures = [row[1] for row in chart.rows]
    assert [figures[step] for step in (0, 30, 60, -1)] == [
        ("4", "0", "0"),
        ("4", "0", "4"),
        ("4", "4", "0"),
        ("4", "4", "4"),
    ]
    assert chart.demand
    assert chart_for(charlie).rows[-1][1] == ("4", "0")


def test_a_task_that_waits_again_did_not_wait_while_it_ran(root: User, held: list[Attempt]) -> None:
    now = timezone.now()
    Attempt.objects.filter(pk=held[1].pk).update(
        state=AttemptState.FINISHED, ended_at=now - timedelta(hours=4)
    )
    for state in ("stopping", "queued"):
        Task.objects.filter(pk=held[1].task_id).update(state=state)
    Task.objects.filter(pk=held[1].task_id).update(submitted_at=now - timedelta(hours=18))

    figures = [row[1][-1] for row in chart_for(root).rows]

    assert [figures[step] for step in (0, 30, 60, 90)] == ["0", "4", "0", "4"]


def test_a_task_that_waits_again_elsewhere_takes_nothing_from_its_old_policy(
    example: Example, root: User, alice: User, submit: Submit, held: list[Attempt]
) -> None:
    now = timezone.now()
    other = submit(alice, "waits")
    Task.objects.filter(pk=other.pk).update(submitted_at=now - timedelta(hours=20))
    Attempt.objects.filter(pk=held[0].pk).update(
        state=AttemptState.FINISHED, ended_at=now - timedelta(hours=4)
    )
    for state in ("stopping", "queued"):
        Task.objects.filter(pk=held[0].task_id).update(state=state)
    moved = Task.objects.get(pk=held[0].task_id)
    alice.groups.add(example.research.group)
    task_change_queue(actor=root, task=moved, queue=example.research_queue.name)
    Task.objects.filter(pk=moved.pk).update(
        submitted_at=now - timedelta(hours=10), waiting_since=None
    )

    began = now - timedelta(hours=24)
    waited = waiting_history(HistoryScope([example.dev.pk]), began=began, until=now, steps=24)

    assert [round(one, -2) for one in waited[5:]] == [4000] * 19


def test_however_much_waits_what_is_held_stays_readable() -> None:
    series = (Series("a", "use", (1000, 1000)),)
    at = (AT + timedelta(hours=1), AT + timedelta(hours=2))

    chart = history_chart(
        SplitHistory(AT, at, {}), series, (0, 99000), 4000, used=UNKNOWN, hours=24, zone=UTC_ZONE
    )

    assert chart is not None
    assert chart.ticks[-1].text == "20"
    assert chart.demand == "M0 190H1V0H2"
    assert chart.rows[1][1] == ("1", "99")


# --- geometry ----------------------------------------------------------------------------------


def test_areas_are_stacked_step_lines() -> None:
    series = (Series("a", "use", (1000, 1000, 3000, 0)), Series("b", "pool", (0, 1000, 1000, 4000)))
    at = tuple(AT + timedelta(hours=step + 1) for step in range(4))

    chart = history_chart(
        SplitHistory(AT, at, {}), series, (0,) * 4, None, used=UNKNOWN, hours=24, zone=UTC_ZONE
    )

    assert chart is not None
    lower, upper = chart.areas
    assert lower.line == "M0 150H2V50H3V200H4"
    assert upper.line == "M0 150H1V100H2V0H4"
    assert lower.area == "M0 150H2V50H3V200H4V200H3V200H2V200H1V200H0Z"
    assert chart.ticks[-1].text == "4"
    assert chart.steps[2].label == "9 Mar, 14:00 to 15:00: a 3, b 1"


def test_the_capacity_sets_the_scale_as_well() -> None:
    series = (Series("a", "use", (1000, 1000)),)
    at = (AT + timedelta(hours=1), AT + timedelta(hours=2))

    chart = history_chart(
        SplitHistory(AT, at, {}), series, (0, 0), 16000, used=UNKNOWN, hours=24, zone=UTC_ZONE
    )

    assert chart is not None
    assert chart.ticks[-1].text == "20"
    assert chart.capacity is not None
    assert (chart.capacity.y, chart.capacity.text) == (40.0, "16")


def test_all_but_the_largest_are_one_series() -> None:
    values = {name: [number + 1] for number, name in enumerate(NINE)}

    found = series_of(UsageGroup.POOL, values, {name: (name, None) for name in NINE})

    assert [one.label for one in found] == [*NINE[:3:-1], "Smaller pools"]
    assert found[-1].values == (1 + 2 + 3 + 4,)


@pytest.mark.parametrize(
    ("hours", "want_first", "want_count"),
    [
        pytest.param(3, "10:30", 5, id="half hours"),
        pytest.param(24, "15:00", 8, id="three hours"),
        pytest.param(7 * 24, "3 Mar", 7, id="days"),
        pytest.param(30 * 24, "8 Feb", 6, id="five days"),
    ],
)
def test_marks_are_round_times_of_the_reader(hours: int, want_first: str, want_count: int) -> None:
    marks = time_marks(AT - timedelta(hours=hours), AT, ZoneInfo("Europe/Berlin"))

    assert marks[0].text == want_first
    assert len(marks) == want_count


def test_a_pool_without_nodes_has_no_capacity(example: Example, root: User, held: object) -> None:
    assert Pool.objects.filter(nodes__isnull=False).count() == 0
    capacity = chart_for(root).capacity
    assert capacity is not None
    assert capacity.text == "0"
