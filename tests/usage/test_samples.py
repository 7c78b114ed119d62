"""Sums of how GPUs are used equal the samples, and are never more than what was held."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models import Sum

from apps.accounts.models import User
from apps.core import clock
from apps.nodes.models import Device, Node
from apps.tasks.lifecycle.states import AttemptTier
from apps.tasks.models import Attempt, DeviceUse, HeldDevice, Member
from apps.tasks.services.attempts.tiers import attempt_tiers_set
from apps.tasks.services.gpu_use import DeviceSample, device_samples_record
from apps.usage.models import OwnerDay, PolicyDay, PolicyHour, QueueDay
from apps.usage.selectors.labels import UsageGroup
from apps.usage.selectors.periods import UsagePeriod
from apps.usage.selectors.report import usage_report
from apps.usage.services.sums import usage_book
from tests.allocation.state import apply, begin, decided, enqueue, latest, make_node
from tests.people import Example

pytestmark = pytest.mark.django_db

BEGIN = datetime(2026, 3, 1, 22, 17, 5, 250_000, tzinfo=UTC)
TABLES = (PolicyHour, PolicyDay, QueueDay, OwnerDay)
MEASURES = ("known", "used", "idle", "no_process")


@pytest.fixture
def node(example: Example) -> Node:
    return make_node(example.h100, name="h1")


@pytest.fixture
def attempts(example: Example, alice: User, node: Node) -> list[Attempt]:
    """Two that run since `BEGIN`, with four GPUs each."""
    tasks = enqueue(alice, example.dev_queue, 2)
    apply(*decided())
    found = [latest(task) for task in tasks]
    begin(*found)
    Attempt.objects.update(allocated_at=BEGIN, started_at=BEGIN)
    Member.objects.update(started_at=BEGIN)
    return found


def sample(node: Node, at: datetime, percents: dict[str, int | None], used_by: set[str]) -> None:
    held = HeldDevice.objects.select_related("device", "member__attempt")
    processes = {
        (one.device.uuid, str(one.member.attempt.task_id), one.member.attempt.generation, 0): 1
        for one in held
        if one.device.uuid in used_by
    }
    samples = [DeviceSample(uuid, 1, percent, None) for uuid, percent in percents.items()]
    device_samples_record(node, samples, processes, now=at)


def sums(table: type[PolicyHour | PolicyDay | QueueDay | OwnerDay]) -> dict[str, int]:
    found = table.objects.aggregate(**{f"sum_{name}": Sum(name) for name in (*MEASURES, "held")})
    return {name: found[f"sum_{name}"] or 0 for name in (*MEASURES, "held")}


@pytest.mark.parametrize("seed", range(5))
def test_all_tables_have_what_was_sampled_however_often_it_is_booked(
    seed: int, node: Node, attempts: list[Attempt]
) -> None:
    chance = random.Random(seed)
    uuids = list(Device.objects.values_list("uuid", flat=True))
    at, expected = BEGIN, Counter[str]()
    sample(node, at, {}, set())
    for _ in range(120):
        passed = timedelta(milliseconds=chance.choice([60_000, 61_234, 59_999, 119_000]))
        at += passed
        percents = {uuid: chance.choice([0, 3, 4, 50, 100, None]) for uuid in uuids}
        sample(node, at, percents, set(chance.sample(uuids, 4)))
        if chance.random() < 0.3:
            usage_book(now=at)
    usage_book(now=at + timedelta(minutes=10))
    Attempt.objects.update(ended_at=at)
    usage_book(now=at + timedelta(hours=2))

    assert not DeviceUse.objects.filter(is_booked=False).exists()
    for row in DeviceUse.objects.values("sampled_ms", "known_ms", "busy", "process_ms"):
        expected["known"] += 1000 * row["known_ms"]
        expected["used"] += 10 * row["busy"]
        expected["idle"] += 1000 * row["known_ms"] * (row["busy"] < 5 * row["known_ms"])
        expected["no_process"] += 1000 * (row["sampled_ms"] - row["process_ms"])
    for table in TABLES:
        found = sums(table)
        assert {name: found[name] for name in MEASURES} == dict(expected), table
    for hour in PolicyHour.objects.all():
        # What was sampled in an hour was held in it.
        assert hour.used <= hour.known <= hour.held
        assert hour.idle <= hour.known
        assert hour.no_process <= hour.held
    assert expected["idle"] > 0 < expected["used"]


def test_what_ends_is_booked_at_once_with_the_tier_that_it_had(
    node: Node, attempts: list[Attempt]
) -> None:
    [uuid] = HeldDevice.objects.filter(member__attempt=attempts[0], device__index__in=(0, 4))[
        :1
    ].values_list("device__uuid", flat=True)
    sample(node, BEGIN, {}, set())
    attempt_tiers_set({attempts[0].task_id: AttemptTier.BORROWED}, at=BEGIN)
    sample(node, BEGIN + timedelta(minutes=1), {uuid: 40}, {uuid})
    attempt_tiers_set(
        {attempts[0].task_id: AttemptTier.OVER_QUOTA}, at=BEGIN + timedelta(minutes=5)
    )
    Attempt.objects.filter(pk=attempts[0].pk).update(ended_at=BEGIN + timedelta(minutes=6))
    HeldDevice.objects.filter(member__attempt=attempts[0]).update(
        released_at=BEGIN + timedelta(minutes=6)
    )

    usage_book(now=BEGIN + timedelta(minutes=6))

    assert list(PolicyHour.objects.filter(known__gt=0).values_list("tier", "known", "used")) == [
        (AttemptTier.BORROWED, 60_000_000, 24_000_000)
    ]


def test_a_report_has_what_is_not_booked_yet(
    node: Node, attempts: list[Attempt], root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuids = list(Device.objects.values_list("uuid", flat=True))
    later = BEGIN + timedelta(minutes=2)
    sample(node, BEGIN, {}, set())
    sample(node, later, dict.fromkeys(uuids, 40), set())
    monkeypatch.setattr(clock, "now", lambda: later)
    period = UsagePeriod.parse(BEGIN.date(), BEGIN.date())

    def figures() -> list[tuple[int, ...]]:
        reports = [usage_report(root, period, by) for by in UsageGroup]
        return [tuple(one.total[name] for name in MEASURES) for one in reports]

    before = figures()
    assert set(before) == {(960_000_000, 384_000_000, 0, 960_000_000)}
    usage_book(now=later + timedelta(minutes=30))
    assert figures() == before
