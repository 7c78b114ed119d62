"""Costs: what was held, at the rate of each hour."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.db.models import Sum
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.core import clock
from apps.core.errors import BadInput, Conflict
from apps.nodes.models import Node
from apps.tasks.models import Attempt
from apps.usage.models import OwnerDay, PolicyDay, PolicyHour, QueueDay, Rate
from apps.usage.selectors.labels import UsageGroup
from apps.usage.selectors.periods import UsagePeriod
from apps.usage.selectors.rates import Rates, cost_of
from apps.usage.selectors.report import usage_report
from apps.usage.services import rates
from apps.usage.services.rates import rate_create, rate_remove
from apps.usage.services.sums import usage_book
from tests.allocation.state import apply, decided, enqueue, latest, make_node
from tests.dashboard.conftest import ClientFor, client_for
from tests.dashboard.page_reader import errors_at, text
from tests.people import Example

__all__ = ["client_for"]

pytestmark = pytest.mark.django_db

ApiAs = Callable[[User], APIClient]
BEGIN = datetime(2026, 3, 1, 22, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
ON_THE_HOUR = BEGIN.replace(minute=0)


@pytest.fixture
def attempt(example: Example, alice: User) -> Attempt:
    """It holds four GPUs of an H100 node since `BEGIN`."""
    make_node(example.h100, name="h1")
    [task] = enqueue(alice, example.dev_queue)
    apply(*decided())
    Attempt.objects.update(allocated_at=BEGIN, started_at=BEGIN, request={"gpu": 4000})
    return latest(task)


def sums() -> set[int]:
    tables = (PolicyHour, PolicyDay, QueueDay, OwnerDay)
    return {table._default_manager.aggregate(sum=Sum("cost"))["sum"] or 0 for table in tables}


def test_each_hour_costs_what_its_rate_says_and_keeps_it(
    attempt: Attempt, example: Example, root: User
) -> None:
    rate_create(actor=root, price=Decimal("1.50"), valid_from=ON_THE_HOUR - HOUR)
    usage_book(now=BEGIN + HOUR)
    assert sums() == {3_000_000}, "half an hour of four GPUs"

    rate_create(actor=root, price=Decimal(3), valid_from=ON_THE_HOUR + HOUR)
    usage_book(now=ON_THE_HOUR + 3 * HOUR)
    assert sums() == {3_000_000 + 2 * 12_000_000}

    with pytest.raises(BadInput) as refused:
        rate_create(actor=root, price=Decimal(9), valid_from=ON_THE_HOUR + 2 * HOUR)
    assert "choose that hour or a later one" in refused.value.fields["valid_from"]


def test_an_end_that_arrives_late_takes_its_cost_back(attempt: Attempt, root: User) -> None:
    rate_create(actor=root, price=Decimal("0.7777"), valid_from=ON_THE_HOUR)
    usage_book(now=ON_THE_HOUR + 5 * HOUR)
    ended = BEGIN + timedelta(hours=1, seconds=1, milliseconds=234)
    Attempt.objects.update(ended_at=ended, state="finished", exit_code=0)
    usage_book(now=ON_THE_HOUR + 6 * HOUR)

    [total] = sums()
    exact = 4 * 0.7777 * (ended - BEGIN).total_seconds() / 3600
    assert total / 1e6 == pytest.approx(exact, abs=1e-5)


@pytest.mark.parametrize("later", ["", "B300"])
def test_what_a_node_says_later_changes_no_cost(attempt: Attempt, root: User, later: str) -> None:
    rate_create(actor=root, price=Decimal(10), valid_from=ON_THE_HOUR, model="H100")
    rate_create(actor=root, price=Decimal(100), valid_from=ON_THE_HOUR, model="B300")
    usage_book(now=BEGIN + timedelta(minutes=1))
    Node.objects.update(gpu_model=later)
    usage_book(now=ON_THE_HOUR + 5 * HOUR)
    assert sums() == {4 * 45 * 1_000_000}

    Attempt.objects.update(ended_at=BEGIN + HOUR, state="finished", exit_code=0)
    usage_book(now=ON_THE_HOUR + 6 * HOUR)

    assert sums() == {40_000_000}
    assert set(PolicyDay.objects.values_list("model", flat=True)) == {"H100"}


def test_the_rate_that_names_more_goes_first(example: Example, root: User) -> None:
    pool, other = example.h100.pk, example.bare_metal.pk
    start = ON_THE_HOUR
    for number, given in (
        (1, {}),
        (2, {"model": "H100"}),
        (3, {"pool": example.h100}),
        (4, {"pool": example.h100, "model": "H100"}),
    ):
        rate_create(actor=root, price=Decimal(number), valid_from=start, **given)
    rate_create(actor=root, price=Decimal(9), valid_from=start + 2 * HOUR)
    rates = Rates.load()

    def price(pool: int, model: str, at: datetime = start) -> int:
        return rates.cost({"gpu": 1000}, 3_600_000, at=at, pool=pool, model=model) // 1_000_000

    found = [price(pool, "H100"), price(pool, "A100"), price(other, "H100"), price(other, "A100")]
    assert found == [4, 3, 2, 1]
    assert price(other, "A100", start + 2 * HOUR) == 9
    assert price(pool, "H100", start - HOUR) == 0


def test_other_resources_have_rates_too(attempt: Attempt, root: User) -> None:
    rate_create(actor=root, key="cpu", price=Decimal("0.05"), valid_from=ON_THE_HOUR)
    rate_create(actor=root, key="memory_mb", price=Decimal("0.01"), valid_from=ON_THE_HOUR)
    Attempt.objects.update(request={"cpu": 8000, "memory_mb": 16_384_000}, ended_at=BEGIN + HOUR)
    usage_book(now=BEGIN + 2 * HOUR)

    assert sums() == {400_000 + 160_000}


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("price", {"price": Decimal(-1)}),
        ("price", {"price": Decimal(1_000_001)}),
        ("valid_from", {"valid_from": BEGIN}),
        ("key", {"key": "nothing"}),
    ],
)
def test_wrong_rates_are_refused_at_their_field(
    field: str, given: dict[str, object], example: Example, root: User
) -> None:
    values: dict[str, object] = {"price": Decimal(1), "valid_from": ON_THE_HOUR} | given
    with pytest.raises(BadInput) as refused:
        rate_create(actor=root, **values)  # type: ignore[arg-type]  # as above
    assert list(refused.value.fields) == [field]
    assert not Rate.objects.exists()


def test_a_rate_is_removed_while_nothing_is_summed_up_by_it(attempt: Attempt, root: User) -> None:
    first = rate_create(actor=root, price=Decimal(1), valid_from=ON_THE_HOUR)
    with pytest.raises(BadInput):
        rate_create(actor=root, price=Decimal(1), valid_from=ON_THE_HOUR)
    later = rate_create(actor=root, price=Decimal(2), valid_from=ON_THE_HOUR + 9 * HOUR)
    usage_book(now=ON_THE_HOUR + 2 * HOUR)

    rate_remove(actor=root, rate=later)
    with pytest.raises(Conflict):
        rate_remove(actor=root, rate=first)
    assert list(Rate.objects.all()) == [first]


def test_reports_have_costs_once_there_is_a_rate(
    attempt: Attempt, root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "now", lambda: BEGIN + HOUR)
    period = UsagePeriod.parse(BEGIN.date(), BEGIN.date())
    assert usage_report(root, period, UsageGroup.POLICY).currency == ""

    rate_create(actor=root, price=Decimal(2), valid_from=ON_THE_HOUR)
    for by in UsageGroup:
        report = usage_report(root, period, by)
        # What runs now is in it: an hour of four GPUs.
        assert (report.currency, cost_of(report.total["cost"])) == ("EUR", Decimal("8.0000"))


def test_administrators_set_rates_by_rest_and_members_see_what_it_costs(
    attempt: Attempt, example: Example, root: User, alice: User, api_as: ApiAs
) -> None:
    admin, member = api_as(root), api_as(alice)
    body = {"price": "2.5", "valid_from": "2026-03-01T00:00:00Z", "pool": example.h100.name}

    assert member.post("/api/v1/usage/rates/", body, format="json").status_code == 403
    made = admin.post("/api/v1/usage/rates/", body, format="json")
    assert (made.status_code, made.json()["price"]) == (201, "2.5000")
    wrong = admin.post("/api/v1/usage/rates/", body | {"pool": "nowhere"}, format="json")
    assert (wrong.status_code, list(wrong.json()["fields"])) == (400, ["pool"])
    [listed] = admin.get("/api/v1/usage/rates/").json()
    assert (listed["pool"], listed["is_removable"]) == (example.h100.name, True)

    Attempt.objects.update(ended_at=BEGIN + HOUR)
    days = "since=2026-03-01&until=2026-03-02"
    report = member.get(f"/api/v1/usage/?{days}").json()
    assert (report["currency"], report["total"]["cost"]) == ("EUR", "10.0000")
    table = member.get(f"/api/v1/usage/csv/?{days}").content.decode().splitlines()
    assert table[0].endswith('"cost","cost_before","currency"')
    assert table[1].endswith('"10.0000","0.0000","EUR"')

    assert admin.delete(f"/api/v1/usage/rates/{listed['id']}/").status_code == 204
    assert admin.get("/api/v1/usage/rates/").json() == []


def test_an_administrator_adds_and_removes_a_rate_on_its_page(
    example: Example, root: User, alice: User, client_for: ClientFor
) -> None:
    make_node(example.h100, name="h1")
    browser = client_for(root)
    assert "No rate yet" in text(browser.get("/usage/rates/"))
    assert client_for(alice).get("/usage/rates/").status_code == 404
    values = {"price": "2", "key": "gpu", "pool": example.h100.pk, "model": "H100", "hour": 9}

    missing = browser.post("/usage/rates/new/", values)
    assert missing.status_code == 400
    assert errors_at("day", missing)
    saved = browser.post("/usage/rates/new/", values | {"day": "2026-03-01"}, follow=True)
    assert "1 Mar 2026, 09:00 gpu" in text(saved)

    rate = Rate.objects.get()
    assert "Remove the rate of gpu" in text(browser.get(f"/usage/rates/{rate.pk}/remove/"))
    gone = browser.post(f"/usage/rates/{rate.pk}/remove/", follow=True)
    assert "No rate yet" in text(gone)


def test_a_year_of_rates_is_bounded_and_older_ones_do_not_count(
    example: Example, root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "MOST_RATES", 2)
    for number in range(2):
        rate_create(actor=root, price=Decimal(1), valid_from=ON_THE_HOUR + number * HOUR)
    with pytest.raises(Conflict):
        rate_create(actor=root, price=Decimal(1), valid_from=ON_THE_HOUR + 2 * HOUR)

    Rate.objects.update(created_at=clock.now() - timedelta(days=366))
    rate_create(actor=root, price=Decimal(1), valid_from=ON_THE_HOUR + 2 * HOUR)


def test_the_number_of_queries_does_not_follow_the_number_of_rates(
    attempt: Attempt, root: User, api_as: ApiAs
) -> None:
    listed = "/api/v1/usage/rates/"
    with CaptureQueriesContext(connection) as none:
        api_as(root).get(listed)
    period = UsagePeriod.parse(BEGIN.date(), BEGIN.date())
    with CaptureQueriesContext(connection) as before:
        usage_report(root, period, UsageGroup.POLICY)
    for number in range(5):
        rate_create(actor=root, price=Decimal(2), valid_from=ON_THE_HOUR + number * HOUR)
    with CaptureQueriesContext(connection) as after:
        usage_report(root, period, UsageGroup.POLICY)
    with CaptureQueriesContext(connection) as five:
        api_as(root).get(listed)
    assert len(after) == len(before)
    assert len(five) == len(none)
