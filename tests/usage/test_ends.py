"""How the end of an attempt is counted: as its task and its page say."""

from datetime import timedelta

import pytest

from apps.accounts.models import User
from apps.core import clock
from apps.tasks.lifecycle.states import AttemptState, TaskState
from apps.tasks.models import Attempt, Member
from apps.usage.models import PolicyDay
from apps.usage.services.sums import usage_book
from tests.allocation.state import enqueue
from tests.people import Example

pytestmark = pytest.mark.django_db

COUNTERS = ("completed", "failed", "preempted")


@pytest.mark.parametrize(
    ("attempt", "member", "counted", "lost_h"),
    [
        ({"exit_code": 0}, {"exit_code": 0}, "completed", 0),
        ({"exit_code": 3}, {"exit_code": 3}, "failed", 0),
        # Preempted, and gone because of that.
        (
            {"exit_code": 143, "is_preempted": True, "stop_target": TaskState.QUEUED},
            {"exit_code": 143, "is_stop_asked": True},
            "preempted",
            2,
        ),
        # It had finished before its node was asked: its result counts, and nothing is lost.
        (
            {"exit_code": 0, "is_preempted": True, "stop_target": TaskState.QUEUED},
            {"exit_code": 0},
            "completed",
            0,
        ),
        # Aborted, and gone in good order.
        (
            {"exit_code": 0, "stop_target": TaskState.ABORTED},
            {"exit_code": 0, "is_stop_asked": True},
            "",
            0,
        ),
        # Stopped at its time limit.
        (
            {"exit_code": 0, "stop_target": TaskState.FAILED},
            {"exit_code": 0, "is_stop_asked": True},
            "failed",
            0,
        ),
        ({"exit_code": None, "state": AttemptState.LOST}, {"is_lost": True}, "", 2),
    ],
)
def test_an_end_counts_as_what_it_was(
    example: Example,
    alice: User,
    attempt: dict[str, object],
    member: dict[str, object],
    counted: str,
    lost_h: int,
) -> None:
    (task,) = enqueue(alice, example.dev_queue)
    now = clock.now()
    facts: dict[str, object] = {
        "task": task,
        "generation": 1,
        "queue": example.dev_queue,
        "policy": example.dev,
        "pool": example.h100,
        "request": {"gpu": 1000},
        "state": AttemptState.FINISHED,
        "allocated_at": now - timedelta(hours=3),
        "started_at": now - timedelta(hours=3),
        "checkpointed_at": now - timedelta(hours=2),
        "ended_at": now,
    }
    row = Attempt.objects.create(**(facts | attempt))
    Member.objects.create(attempt=row, pool=example.h100, **member)

    usage_book()

    days = list(PolicyDay.objects.all())
    found = {name: sum(getattr(day, name) for day in days) for name in COUNTERS}
    assert found == {name: int(name == counted) for name in COUNTERS}
    assert sum(day.ended for day in days) == 1
    assert sum(day.lost for day in days) == lost_h * 3_600_000_000
