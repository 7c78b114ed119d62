"""Sums of usage equal what the attempts held, whatever happens in which order."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models import Sum
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.accounts.models import User
from apps.core import clock
from apps.tasks.lifecycle.states import AttemptState, AttemptTier
from apps.tasks.models import Attempt, Task
from apps.tasks.services.attempts.tiers import attempt_tiers_set
from apps.usage.models import OwnerDay, PolicyDay, PolicyHour, QueueDay
from apps.usage.services.sums import usage_book
from tests.allocation.state import enqueue
from tests.people import Example

pytestmark = pytest.mark.django_db

BEGIN = datetime(2026, 3, 1, 22, 17, 5, 250_000, tzinfo=UTC)


@dataclass
class Life:
    """What the test knows of an attempt: its tiers with their beginnings, in milliseconds."""

    attempt: Attempt
    began: int
    tiers: list[tuple[int, AttemptTier]] = field(default_factory=list)
    ended: int | None = None

    def held(self) -> Counter[str]:
        gpu = self.attempt.request["gpu"] * self.attempt.replicas
        assert self.ended is not None
        edges = [*(at for at, _ in self.tiers[1:]), 10**15]
        found: Counter[str] = Counter()
        for (start, tier), stop in zip(self.tiers, edges, strict=True):
            found[tier] += gpu * max(min(stop, self.ended) - start, 0)
        return found


@dataclass
class World:
    """Tasks that start and end; `now` in milliseconds since `BEGIN`."""

    example: Example
    tasks: list[Task]
    now: int = 0
    lives: list[Life] = field(default_factory=list)

    def at(self, ms: int) -> datetime:
        return BEGIN + timedelta(milliseconds=ms)

    def live(self, task: int) -> Life | None:
        own = [one for one in self.lives if one.attempt.task_id == self.tasks[task].pk]
        return own[-1] if own and own[-1].ended is None else None

    def start(self, task: int, gpu: int, tier: AttemptTier) -> None:
        one = self.tasks[task]
        generation = sum(life.attempt.task_id == one.pk for life in self.lives) + 1
        queue = self.example.dev_queue if task % 2 else self.example.research_queue
        attempt = Attempt.objects.create(
            task=one,
            generation=generation,
            queue=queue,
            policy=self.example.dev if task % 2 else self.example.research,
            pool=self.example.h100,
            request={"gpu": gpu},
            replicas=1 + task,
            tier=tier,
            allocated_at=self.at(self.now),
            state=AttemptState.RUNNING,
        )
        self.lives.append(Life(attempt, self.now, [(self.now, tier)]))

    def end(self, life: Life, ago: int) -> None:
        """The end is stored now and was `ago` milliseconds before."""
        life.ended = max(self.now - ago, life.began)
        Attempt.objects.filter(pk=life.attempt.pk).update(
            ended_at=self.at(self.now - ago), state=AttemptState.FINISHED, exit_code=0
        )


KINDS = ("start", "start", "end", "late end", "tier", "book", "book early")


def steps_of(seed: int) -> Iterator[tuple[str, int, AttemptTier, int, int]]:
    """About thirty steps; times from milliseconds to days."""
    chance = random.Random(seed)
    for _ in range(30):
        passed, ago = (int(10 ** chance.uniform(0, 8)) for _ in range(2))
        yield (
            chance.choice(KINDS),
            chance.randint(0, 1),
            chance.choice(list(AttemptTier)),
            passed,
            ago,
        )


def step(world: World, kind: str, task: int, tier: AttemptTier, passed: int, ago: int) -> None:
    world.now += passed
    life = world.live(task)
    if kind == "book":
        usage_book(now=world.at(world.now))
    elif kind == "book early":
        usage_book(now=world.at(world.now - ago))
    elif kind == "start" and life is None:
        world.start(task, 250 * (ago % 9 + 1), tier)
    elif kind == "tier" and life is not None:
        attempt_tiers_set({world.tasks[task].pk: tier}, at=world.at(world.now))
        life.tiers.append((world.now, tier))
    elif kind.endswith("end") and life is not None:
        world.end(life, ago if kind == "late end" else 0)


def test_an_end_that_arrives_late_cancels_what_was_booked(example: Example, alice: User) -> None:
    world = World(example, enqueue(alice, example.dev_queue, 1, is_preemptible=True))
    world.start(0, 1000, AttemptTier.RESERVED)
    world.now = 5 * 3_600_000
    usage_book(now=world.at(world.now))
    assert sum(sums(PolicyHour, "policy").values()) > 4 * 3_600_000_000

    world.end(world.lives[0], 4 * 3_600_000)
    usage_book(now=world.at(world.now))

    assert sum(sums(PolicyHour, "policy").values()) == 3_600_000_000
    assert PolicyHour.objects.filter(held=0, ended=0, admitted=0).count() == 3


@contextmanager
def undone() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def sums(table: type[Any], *columns: str) -> dict[tuple[Any, ...], int]:
    rows = table.objects.values_list(*columns).annotate(Sum("held")).order_by()
    return {tuple(key): held for *key, held in rows if held}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(seed=st.integers(0, 2**32))
def test_sums_equal_what_was_held(example: Example, alice: User, seed: int) -> None:
    with undone():
        tasks = enqueue(alice, example.dev_queue, 2, is_preemptible=True)
        world = World(example, tasks)
        for one in steps_of(seed):
            step(world, *one)
        for life in filter(None, map(world.live, range(2))):
            world.end(life, 0)
        usage_book(now=world.at(world.now))
        assert usage_book(now=world.at(world.now)) == 0

        expected: dict[tuple[Any, ...], int] = defaultdict(int)
        for life in world.lives:
            for tier, held in life.held().items():
                expected[life.attempt.policy_id, tier] += held
        expected = {key: held for key, held in expected.items() if held}
        assert sums(PolicyHour, "policy", "tier") == expected
        assert sums(PolicyDay, "policy", "tier") == expected
        by_policy = sums(PolicyDay, "at", "policy")
        assert sums(QueueDay, "at", "policy") == by_policy
        assert sums(OwnerDay, "at", "policy") == by_policy
        for table in (PolicyHour, PolicyDay, QueueDay, OwnerDay):
            counted = table.objects.aggregate(Sum("admitted"), Sum("ended"))
            assert {one or 0 for one in counted.values()} == {len(world.lives)}
        assert not PolicyHour.objects.filter(held__lt=0).exists()


def test_an_attempt_of_many_days_is_booked_in_parts(example: Example, alice: User) -> None:
    world = World(example, enqueue(alice, example.dev_queue, 1, is_preemptible=True))
    world.start(0, 1000, AttemptTier.RESERVED)
    world.now = 70 * 24 * 3_600_000
    world.end(world.lives[0], 0)

    assert usage_book(now=world.at(world.now)) == 3

    assert sum(sums(PolicyDay, "policy").values()) == 1000 * world.now
    assert PolicyDay.objects.aggregate(Sum("ended"))["ended__sum"] == 1


def test_nothing_is_booked_while_the_clock_is_in_doubt(
    example: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(example, enqueue(alice, example.dev_queue, 1, is_preemptible=True))
    world.start(0, 1000, AttemptTier.RESERVED)
    monkeypatch.setattr(clock, "is_in_doubt", lambda: True)

    assert usage_book() == 0
    assert not PolicyHour.objects.exists()
