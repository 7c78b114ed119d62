"""Reports of usage: what each viewer sees of it, in REST and as a file."""

import csv
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO

import pytest
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.core import clock
from apps.core.spreadsheets import csv_line
from apps.policies.models import Policy, Pool, Queue
from apps.tasks.lifecycle.states import AttemptState, AttemptTier
from apps.tasks.models import Attempt
from apps.usage.models import PolicyDay
from apps.usage.selectors import report
from apps.usage.services.sums import usage_book
from tests.allocation.state import enqueue
from tests.people import Example

pytestmark = pytest.mark.django_db

Api = Callable[[User], APIClient]
HOUR_S = 3600


def held(
    example: Example,
    owner: User,
    queue: Queue,
    *,
    gpu: int,
    hours: int,
    ended: datetime | None,
    tier: AttemptTier = AttemptTier.RESERVED,
) -> Attempt:
    """An attempt of so many GPUs for so many hours, up to `ended` or now."""
    (task,) = enqueue(owner, queue)
    began = (ended or clock.now()) - timedelta(hours=hours)
    return Attempt.objects.create(
        task=task,
        generation=1,
        queue=queue,
        policy=queue.policy,
        pool=example.h100,
        request={"gpu": gpu * 1000},
        tier=tier,
        allocated_at=began,
        started_at=began,
        ended_at=ended,
        exit_code=None if ended is None else 0,
        state=AttemptState.RUNNING if ended is None else AttemptState.FINISHED,
    )


@pytest.fixture
def used(example: Example, alice: User, bob: User, charlie: User) -> None:
    """Yesterday at noon Alice had ended 3 h of 2 GPUs, Bob 1 h of 4, Charlie 2 h of 1."""
    noon = clock.now().replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)
    held(example, alice, example.dev_queue, gpu=2, hours=3, ended=noon)
    held(example, bob, example.dev_queue, gpu=4, hours=1, ended=noon, tier=AttemptTier.OVER_QUOTA)
    held(example, charlie, example.research_queue, gpu=1, hours=2, ended=noon)
    usage_book()


def lines(client: APIClient, **query: str) -> dict[str, float]:
    answer = client.get("/api/v1/usage/", query)
    assert answer.status_code == 200, answer.json()
    found = {one["name"]: one["sums"]["gpu_seconds"] for one in answer.json()["lines"]}
    return {name: seconds for name, seconds in found.items() if seconds}


@pytest.mark.usefixtures("used")
def test_a_member_sees_the_policy_and_no_other(api_as: Api, alice: User, charlie: User) -> None:
    assert lines(api_as(alice)) == {"Dev": 10 * HOUR_S}
    assert lines(api_as(charlie)) == {"Research": 2 * HOUR_S}


@pytest.mark.usefixtures("used")
def test_the_total_betrays_nothing_of_other_policies(api_as: Api, charlie: User) -> None:
    for by in ("policy", "pool", "model", "tier", "profile", "queue", "owner"):
        report = api_as(charlie).get("/api/v1/usage/", {"by": by}).json()

        assert report["total"]["gpu_seconds"] == 2 * HOUR_S, by
        assert report["total"]["ended"] == 1, by
        assert sum(one["sums"]["gpu_seconds"] for one in report["lines"]) == 2 * HOUR_S, by


@pytest.mark.usefixtures("used")
def test_other_users_of_a_policy_are_one_line(api_as: Api, alice: User, root: User) -> None:
    assert lines(api_as(alice), by="owner") == {"alice": 6 * HOUR_S, "Other users": 4 * HOUR_S}
    everyone = {"alice": 6 * HOUR_S, "bob": 4 * HOUR_S, "charlie": 2 * HOUR_S}
    assert lines(api_as(root), by="owner") == everyone


@pytest.mark.usefixtures("used")
def test_queues_of_one_profile_are_one_line(
    api_as: Api, example: Example, alice: User, root: User
) -> None:
    name = example.profile.name
    before = lines(api_as(root), by="profile")
    assert before == {name: 12 * HOUR_S}
    assert lines(api_as(alice), by="profile") == {name: 10 * HOUR_S}

    while usage_book():
        """Whatever is booked, the line is the same."""
    assert lines(api_as(root), by="profile") == before


@pytest.mark.usefixtures("used")
def test_administrators_see_everything_by_tier_and_pool(api_as: Api, root: User) -> None:
    assert lines(api_as(root), by="tier") == {"Reserved": 8 * HOUR_S, "Over quota": 4 * HOUR_S}
    assert lines(api_as(root), by="pool") == {"H100 Half a Superpod": 12 * HOUR_S}
    assert lines(api_as(root), pool="Bare Metal Low END GPUs") == {}


@pytest.mark.usefixtures("used")
def test_a_removed_policy_keeps_its_usage(api_as: Api, example: Example, root: User) -> None:
    Policy.objects.filter(pk=example.research.pk).update(removed_at=clock.now())

    assert lines(api_as(root))["Research (removed)"] == 2 * HOUR_S


@pytest.mark.usefixtures("used")
def test_the_line_of_a_policy_contains_those_below_it(
    api_as: Api, example: Example, root: User
) -> None:
    Policy.objects.filter(pk=example.research.pk).update(parent=example.dev)

    report = api_as(root).get("/api/v1/usage/").json()

    found = [(one["name"], one["sums"]["gpu_seconds"]) for one in report["lines"]]
    assert found == [("Dev", 12 * HOUR_S), ("Research", 2 * HOUR_S)]
    assert report["lines"][1]["parent_id"] == report["lines"][0]["id"]
    assert report["total"]["gpu_seconds"] == 12 * HOUR_S


@pytest.mark.usefixtures("used")
def test_a_policy_above_that_the_user_does_not_see_is_not_named(
    api_as: Api, example: Example, charlie: User
) -> None:
    Policy.objects.filter(pk=example.research.pk).update(parent=example.dev)

    (line,) = api_as(charlie).get("/api/v1/usage/").json()["lines"]

    assert (line["name"], line["parent_id"]) == ("Research", None)


def test_what_runs_now_counts_up_to_this_moment(api_as: Api, example: Example, alice: User) -> None:
    attempt = held(example, alice, example.dev_queue, gpu=1, hours=30, ended=None)

    before = lines(api_as(alice))["Dev"]
    usage_book()
    after = lines(api_as(alice))["Dev"]

    most = (clock.now() - attempt.allocated_at).total_seconds()
    assert 30 * HOUR_S <= before <= after <= most


def test_a_period_is_compared_with_as_many_days_before(
    api_as: Api, example: Example, alice: User
) -> None:
    for day, gpu in ((10, 1), (8, 2)):
        ended = datetime(2026, 3, day, 12, tzinfo=UTC)
        held(example, alice, example.dev_queue, gpu=gpu, hours=1, ended=ended)
    usage_book()

    query = {"since": "2026-03-09", "until": "2026-03-10"}
    report = api_as(alice).get("/api/v1/usage/", query).json()

    (line,) = report["lines"]
    assert (line["sums"]["gpu_seconds"], line["before"]["gpu_seconds"]) == (HOUR_S, 2 * HOUR_S)
    assert line["steps"] == [{"at": "2026-03-10T11:00:00Z", "gpu_seconds": HOUR_S}]
    assert report["step"] == "hour"


def test_numbers_stay_numbers_and_texts_that_look_like_them_do_not() -> None:
    assert csv_line([-1.5, Decimal("-2.50"), -3, "-4", None]) == (
        '"-1.5","-2.50","-3","\'-4",""\r\n'
    )


@pytest.mark.usefixtures("used")
def test_the_file_is_safe_for_spreadsheets(api_as: Api, example: Example, root: User) -> None:
    Policy.objects.filter(pk=example.dev.pk).update(name="=1+1")

    answer = api_as(root).get("/api/v1/usage/csv/")

    rows = list(csv.DictReader(StringIO(answer.content.decode())))
    assert answer["Content-Type"].startswith("text/csv")
    assert "usage-by-policy-" in answer["Content-Disposition"]
    assert {row["name"]: row["gpu_seconds"] for row in rows} == {
        "'=1+1": "36000.0",
        "Research": "7200.0",
    }


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"since": "2026-03-10", "until": "2026-03-09"}, "until"),
        ({"since": "2020-01-01", "until": "2026-03-09"}, "since"),
        ({"since": "0001-01-01", "until": "0001-01-02"}, "until"),
        ({"until": "0001-01-02"}, "until"),
        ({"until": "9999-12-31"}, "until"),
        ({"by": "moon"}, "by"),
        ({"by": "owner", "pool": "H100 Half a Superpod"}, "pool"),
        ({"pool": "none of these"}, "pool"),
        ({"sinse": "2026-03-10"}, "sinse"),
    ],
)
def test_a_wrong_question_names_the_field(
    api_as: Api, example: Example, root: User, query: dict[str, str], field: str
) -> None:
    answer = api_as(root).get("/api/v1/usage/", query)

    assert answer.status_code == 400
    assert field in answer.json()["fields"], answer.json()


def test_a_pool_that_the_user_does_not_see_does_not_exist(
    api_as: Api, example: Example, charlie: User, root: User
) -> None:
    Pool.objects.create(name="Hidden")

    assert api_as(charlie).get("/api/v1/usage/", {"pool": "Hidden"}).status_code == 400
    assert api_as(root).get("/api/v1/usage/", {"pool": "Hidden"}).status_code == 200


@pytest.mark.usefixtures("used")
def test_time_without_a_tier_is_a_line_of_its_own(
    api_as: Api, example: Example, root: User
) -> None:
    PolicyDay.objects.filter(tier=AttemptTier.OVER_QUOTA).update(tier="")
    report = api_as(root).get("/api/v1/usage/", {"by": "tier"}).json()

    assert {one["name"] for one in report["lines"]} == {"Reserved", "Not recorded"}
    rows = csv.DictReader(StringIO(api_as(root).get("/api/v1/usage/csv/").content.decode()))
    assert next(rows)["gpu_seconds_tier_not_recorded"] == str(4.0 * HOUR_S)


@pytest.mark.usefixtures("used")
def test_the_file_has_no_tiers_by_owner(api_as: Api, root: User) -> None:
    answer = api_as(root).get("/api/v1/usage/csv/", {"by": "owner"})

    rows = list(csv.DictReader(StringIO(answer.content.decode())))
    assert {row["gpu_seconds_over_quota"] for row in rows} == {""}


def test_sums_by_owner_have_no_tiers_before_they_are_booked_either(
    api_as: Api, example: Example, alice: User
) -> None:
    held(example, alice, example.dev_queue, gpu=1, hours=30, ended=None)

    (line,) = api_as(alice).get("/api/v1/usage/", {"by": "owner"}).json()["lines"]

    assert line["sums"]["gpu_seconds"] >= 30 * HOUR_S
    assert line["sums"]["gpu_seconds_by_tier"] == {}


@pytest.mark.usefixtures("used")
def test_models_of_pools_that_the_user_does_not_see_are_not_named(
    api_as: Api, charlie: User, root: User
) -> None:
    PolicyDay.objects.update(model="NVIDIA B200")

    assert lines(api_as(charlie), by="model") == {"Not visible to you": 2 * HOUR_S}
    assert lines(api_as(root), by="model") == {"NVIDIA B200": 12 * HOUR_S}


@pytest.mark.usefixtures("used")
def test_the_number_of_lines_is_bounded(
    api_as: Api, root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "MOST_LINES", 1)

    found = lines(api_as(root), by="owner")

    assert found == {"alice": 6 * HOUR_S, "All smaller ones": 6 * HOUR_S}
