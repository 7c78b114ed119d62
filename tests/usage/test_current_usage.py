"""What counts as reserved and what as over quota, as people read it."""

import uuid
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from apps.tasks.lifecycle.states import AttemptTier
from apps.usage.selectors.current_usage import (
    Amounts,
    LiveAttempt,
    over_quota_tasks,
    tiers_of,
    usage_by,
)

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
POLICY = 1


def attempt(number: int, gpu: int = 4000, **changes: object) -> LiveAttempt:
    values: dict[str, object] = {
        "task_id": uuid.UUID(int=number),
        "policy_id": POLICY,
        "queue_id": 1,
        "pool_id": 1,
        "amounts": {"gpu": gpu},
        "priority": 0,
        "is_preemptible": True,
        "since": START + timedelta(minutes=number),
        "is_started": True,
        "owner_id": 1,
    }
    return LiveAttempt(**values | changes)  # type: ignore[arg-type]  # the names are the fields'


def over_quota(attempts: list[LiveAttempt], reserved: int) -> set[int]:
    tasks = over_quota_tasks(attempts, {POLICY: Amounts({"gpu": reserved}, {})})
    return {task.int for task in tasks}


def test_the_longest_running_work_is_the_reserved_one() -> None:
    assert over_quota([attempt(1), attempt(2), attempt(3)], 8000) == {3}


def test_higher_priority_counts_before_age() -> None:
    assert over_quota([attempt(1), attempt(2), attempt(3, priority=5)], 8000) == {2}


def test_work_that_cannot_be_preempted_counts_first_of_all() -> None:
    assert over_quota([attempt(1, priority=9), attempt(2, is_preemptible=False)], 4000) == {1}


def test_a_smaller_task_still_fits_behind_one_that_does_not() -> None:
    assert over_quota([attempt(1, 4000), attempt(2, 4000), attempt(3, 2000)], 6000) == {2}


def test_a_policy_without_reservation_has_only_over_quota_work() -> None:
    assert over_quota_tasks([attempt(1)], {}) == {uuid.UUID(int=1)}


def test_a_task_that_asks_for_none_of_the_reserved_keys_is_over_quota() -> None:
    assert over_quota([attempt(1, amounts={"cpu": 4000})], 8000) == {1}


@given(
    gpus=st.lists(st.integers(min_value=1, max_value=16000), max_size=12),
    reserved=st.integers(min_value=0, max_value=64000),
)
def test_reserved_use_never_passes_the_reservation(gpus: list[int], reserved: int) -> None:
    attempts = [attempt(number, gpu) for number, gpu in enumerate(gpus)]
    tasks = over_quota_tasks(attempts, {POLICY: Amounts({"gpu": reserved}, {})})

    usage = usage_by(attempts, tasks, of="policy_id")[POLICY]

    assert usage.reserved <= reserved
    assert usage.total == sum(gpus)
    assert usage.tasks == len(gpus)


def test_what_a_policy_does_not_cover_is_borrowed_from_the_one_above() -> None:
    top, team = 2, 3
    amounts = {
        top: Amounts({"gpu": 8000}),
        team: Amounts({"gpu": 4000}, parent=top),
    }
    attempts = [attempt(number, policy_id=team) for number in (1, 2, 3)]

    tiers = tiers_of(attempts, amounts)

    assert [tiers[one.task_id] for one in attempts] == [
        AttemptTier.RESERVED,
        AttemptTier.BORROWED,
        AttemptTier.OVER_QUOTA,
    ]
