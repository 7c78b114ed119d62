"""What was reserved and not used: from recorded reservations, for those who see all of it."""

import csv
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Group
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.configuration.services.policies import policy_change, policy_create, policy_remove
from apps.core import clock
from apps.policies.models import Policy
from apps.tasks.lifecycle.states import AttemptTier
from apps.usage.models import ReservedSince
from apps.usage.services.reservations import reservations_record
from apps.usage.services.sums import usage_book
from tests.people import Example
from tests.usage.test_report import held

pytestmark = pytest.mark.django_db

Api = Callable[[User], APIClient]
HOUR_S = 3600
DAY = timedelta(days=1)


@pytest.fixture
def day() -> datetime:
    """The beginning of a day that is over."""
    today = clock.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return today - 2 * DAY


def lines(client: APIClient, day: datetime) -> dict[str, tuple[float | None, float | None]]:
    """GPU hours that were reserved on that day, and those of them that were unused."""
    period = {"since": f"{day:%Y-%m-%d}", "until": f"{day:%Y-%m-%d}"}
    answer: dict[str, Any] = client.get("/api/v1/usage/", period).json()

    def hours(seconds: float | None) -> float | None:
        return None if seconds is None else seconds / HOUR_S

    return {
        one["name"]: (
            hours(one["gpu_seconds_reservation"]),
            hours(one["gpu_seconds_reservation_unused"]),
        )
        for one in answer["lines"]
    }


def test_what_was_reserved_and_not_held_is_exact(
    example: Example, api_as: Api, root: User, alice: User, day: datetime
) -> None:
    reservations_record(now=day - 10 * DAY)
    policy_change(actor=root, policy=example.dev, changes={"reserved": {"gpu": 4}})
    reservations_record(now=day + timedelta(hours=6))
    noon = day + timedelta(hours=12)
    held(example, alice, example.dev_queue, gpu=2, hours=3, ended=noon)
    held(example, alice, example.dev_queue, gpu=8, hours=1, ended=noon, tier=AttemptTier.OVER_QUOTA)
    usage_book()

    reserved = 8 * 6 + 4 * 18
    found = lines(api_as(root), day)
    assert found == {"Dev": (reserved, reserved - 6), "Research": (8 * 24, 8 * 24)}
    assert lines(api_as(alice), day) == {"Dev": (reserved, reserved - 6)}
    response = api_as(root).get(f"/api/v1/usage/csv/?since={day.date()}&until={day.date()}")
    rows = list(csv.DictReader(StringIO(response.content.decode())))
    assert [float(row["gpu_seconds_reservation_unused"]) / HOUR_S for row in rows] == [
        unused for _, unused in found.values()
    ]


def test_a_change_is_recorded_once_and_a_removed_policy_reserves_nothing(
    example: Example, root: User
) -> None:
    assert reservations_record() == 2
    assert reservations_record() == 0

    policy_change(actor=root, policy=example.dev, changes={"reserved": {"gpu": 2}})
    policy_remove(actor=root, policy=example.research)

    assert reservations_record() == 2
    assert reservations_record() == 0
    rows = ReservedSince.objects.order_by("pk").values_list("policy__name", "milli")
    assert list(rows) == [("Dev", 8000), ("Research", 8000), ("Dev", 2000), ("Research", 0)]


def test_a_top_policy_uses_what_those_below_it_borrow(
    example: Example, api_as: Api, root: User, alice: User, dev_group: Group, day: datetime
) -> None:
    top = policy_create(actor=root, name="Lab", group=dev_group, reserved={"gpu": 10})
    middle = policy_create(actor=root, name="Middle", group=dev_group)
    policy_change(actor=root, policy=middle, changes={"parent": top})
    policy_change(actor=root, policy=example.dev, changes={"parent": middle})
    reservations_record(now=day - DAY)
    noon = day + timedelta(hours=12)
    for tier, hours in ((AttemptTier.RESERVED, 3), (AttemptTier.BORROWED, 2)):
        held(example, alice, example.dev_queue, gpu=2, hours=hours, ended=noon, tier=tier)
    usage_book()

    assert lines(api_as(root), day) == {
        "Lab": (240, 230),
        "Middle": (None, None),
        "Dev": (192, 186),
        "Research": (192, 192),
    }
    # Those who see the top policy may not see all of those below it.
    assert lines(api_as(alice), day)["Lab"] == (None, None)


def test_times_of_which_reservations_are_not_recorded_have_no_figure(
    example: Example, api_as: Api, root: User, alice: User, day: datetime
) -> None:
    held(example, alice, example.dev_queue, gpu=2, hours=3, ended=day - 3 * DAY)
    usage_book()
    assert Policy.objects.count() == 2
    reservations_record(now=day + timedelta(hours=6))

    held(example, alice, example.dev_queue, gpu=2, hours=3, ended=day + timedelta(hours=12))
    usage_book()

    assert lines(api_as(root), day) == {"Dev": (None, None)}
    assert lines(api_as(root), day + DAY) == {"Dev": (192, 192), "Research": (192, 192)}


def test_what_a_clock_that_was_ahead_recorded_is_dropped(
    example: Example, root: User, day: datetime
) -> None:
    reservations_record(now=day)
    policy_change(actor=root, policy=example.dev, changes={"reserved": {"gpu": 2}})
    assert reservations_record(now=day + 20 * DAY) == 1

    assert [reservations_record(now=day + timedelta(minutes=n)) for n in (1, 2, 3)] == [1, 0, 0]

    of_dev = ReservedSince.objects.filter(policy=example.dev)
    assert list(of_dev.values_list("milli", flat=True)) == [8000, 2000]
    assert not ReservedSince.objects.filter(at__gt=day + DAY).exists()
