"""Rates that change while usage is summed up: real threads on PostgreSQL."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection, connections
from django.db.models import Sum

from apps.accounts.models import User
from apps.core.errors import RpmError
from apps.tasks.models import Attempt
from apps.usage.models import PolicyDay, PolicyHour, Rate
from apps.usage.selectors.rates import Rates
from apps.usage.services.rates import rate_create, rate_remove
from apps.usage.services.sums import usage_book
from tests.allocation.state import apply, decided, enqueue, make_node
from tests.people import Example
from tests.services.ports import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
BEGIN = datetime(2026, 3, 1, 22, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
ON_THE_HOUR = BEGIN.replace(minute=0)


@pytest.fixture(autouse=True)
def held(example: Example, alice: User) -> None:
    """Four GPUs since `BEGIN`."""
    if connection.vendor != "postgresql":
        pytest.skip("one writer at a time needs no lock")
    make_node(example.h100, name="h1")
    enqueue(alice, example.dev_queue)
    apply(*decided())
    Attempt.objects.update(allocated_at=BEGIN, started_at=BEGIN, request={"gpu": 4000})


def while_it_is_booked(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Call `change` once a booking has read the rates, and before it has written."""
    load, read, changing = Rates.load, threading.Event(), threading.Event()

    def slow() -> Rates:
        found = load()
        read.set()
        assert changing.wait(20)
        return found

    def in_thread(work: Callable[[], object]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except RpmError:
                """What the change is refused with does not matter here."""
            finally:
                connections.close_all()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    monkeypatch.setattr("apps.usage.selectors.bookings.Rates.load", slow)
    booking = in_thread(lambda: usage_book(now=ON_THE_HOUR + 3 * HOUR))
    assert read.wait(20)
    changer = in_thread(change)
    wait_until(lambda: waits_for_a_lock() or not changer.is_alive(), what="the change is tried")
    changing.set()
    booking.join(30)
    changer.join(30)
    assert not booking.is_alive()
    assert not changer.is_alive()
    monkeypatch.undo()


def waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        return cursor.fetchone() is not None


def total() -> int:
    return PolicyDay.objects.aggregate(sum=Sum("cost"))["sum"] or 0


def test_a_rate_that_is_created_meanwhile_counts_from_a_later_hour(
    root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_it_is_booked(
        monkeypatch, lambda: rate_create(actor=root, price=Decimal(10), valid_from=ON_THE_HOUR)
    )

    assert not Rate.objects.exists(), "these hours were summed up without it"
    assert set(PolicyHour.objects.values_list("cost", flat=True)) == {0}


def test_a_rate_that_is_removed_meanwhile_stays(
    root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    rate = rate_create(actor=root, price=Decimal(10), valid_from=ON_THE_HOUR)

    while_it_is_booked(monkeypatch, lambda: rate_remove(actor=root, rate=rate))

    assert (Rate.objects.count(), total()) == (1, 100_000_000)


def test_of_two_equal_rates_at_once_one_is_created(root: User) -> None:
    start = threading.Barrier(2)
    refused: list[RpmError] = []

    def create() -> None:
        try:
            start.wait(20)
            rate_create(actor=root, price=Decimal(1), valid_from=ON_THE_HOUR)
        except RpmError as error:
            refused.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=create) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert (Rate.objects.count(), len(refused)) == (1, 1)
