"""Remove exactly what a reason names, by its numbers, and the verdict is another one."""

from __future__ import annotations

import pytest
from hypothesis import given

from apps.allocation.engine import decide
from apps.allocation.engine.model.plan import Plan, Wait
from apps.allocation.engine.model.reasons import INELIGIBLE_CODES, Reason, ReasonCode
from apps.allocation.engine.model.snapshot import Id, Snapshot
from apps.allocation.explanation.sentences import sentence
from tests.allocation.engine.laws.blocker_removal import alone, without_blocker
from tests.allocation.engine.laws.history import Case, moments
from tests.allocation.engine.strategies import any_cases
from tests.allocation.engine.test_reasons import CASES
from tests.allocation.explanation.plain_names import PlainNames

# Other waiting tasks are named by these: without them the task would wait for another reason.
OF_OTHERS = frozenset({ReasonCode.OUTRANKED, ReasonCode.BEHIND, ReasonCode.HELD})
NUMBERS = {
    ReasonCode.LIMIT: ("policy", "key", "usage", "limit", "needed"),
    ReasonCode.NEEDS_RESERVATION: ("policy", "key", "usage", "limit", "needed"),
    ReasonCode.OVER_QUOTA_NOT_ALLOWED: ("policy", "key", "usage", "limit", "needed"),
    ReasonCode.CAPACITY: ("pool", "key", "needed", "free"),
    ReasonCode.OUTRANKED: ("pool", "count", "policies"),
    ReasonCode.HELD: ("pool", "policy", "tasks", "key", "free", "limit", "needed"),
    ReasonCode.DRAINING: ("pool", "tasks"),
    ReasonCode.PROTECTED: ("pool", "tasks"),
    ReasonCode.NO_SERVER: ("pool",),
}


def wait_of(plan: Plan, task: Id) -> Wait | None:
    return next((wait for wait in plan.waiting if task in wait.tasks), None)


def check(snapshot: Snapshot, wait: Wait) -> None:
    """With its blocker gone the task starts, or waits for something else."""
    task = wait.tasks[0]
    after = wait_of(decide(without_blocker(snapshot, wait)), task)
    assert after is None or after.reasons[0] != wait.reasons[0], (task, wait.reasons[0])


def check_words(reason: Reason) -> None:
    words = sentence(reason, PlainNames(), now_us=0)
    assert words.text[:1].isupper() or words.text[:1].isdigit() or words.text.startswith("p")
    assert words.text.endswith(".")
    assert words.help.endswith(".")
    assert "None" not in words.text
    for detail in reason.details:
        for name in NUMBERS.get(reason.code, ()):
            assert getattr(detail, name) not in {None, ()}, (reason.code, name)


@pytest.mark.parametrize(("blocked", "freed", "want"), CASES)
def test_without_what_its_reason_names_a_task_has_another_verdict(
    blocked: Snapshot, freed: Snapshot, want: ReasonCode
) -> None:
    del freed
    wait = wait_of(decide(blocked), "t1")

    assert wait is not None
    assert wait.reasons[0].code is want
    check(blocked, wait)


def test_every_code_is_in_the_table() -> None:
    assert {case.values[2] for case in CASES} == set(ReasonCode) - INELIGIBLE_CODES


@given(any_cases())
def test_in_any_state_the_named_blocker_is_the_blocker(case: Case) -> None:
    """For a task that waits alone, so that no other task takes what is given."""
    for moment in moments(case, decide):
        for wait in moment.plan.waiting:
            for reason in wait.reasons:
                check_words(reason)
            if not wait.tasks:
                continue
            if wait.reasons[0].code in OF_OTHERS:
                check(moment.snapshot, wait)
                continue
            single = alone(moment.snapshot, wait)
            again = wait_of(decide(single), wait.tasks[0])
            if again is not None:
                check(single, again)
