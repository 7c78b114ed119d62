"""A policy whose budget is spent starts nothing, and keeps nothing from others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from apps.allocation.engine import decide
from apps.allocation.engine.model.reasons import ReasonCode
from apps.allocation.engine.model.snapshot import Id, Snapshot
from tests.allocation.engine.builders import placed, queued, reasons, running, scenario
from tests.allocation.engine.laws.history import Case
from tests.allocation.engine.strategies import any_cases


def _family(snapshot: Snapshot, policy: Id) -> Iterator[Id]:
    yield policy
    for one in snapshot.policies:
        if one.parent == policy:
            yield from _family(snapshot, one.id)


@given(any_cases(), st.integers(min_value=0))
def test_it_is_as_if_nothing_waited_there(case: Case, index: int) -> None:
    base = case.snapshot
    policy = base.policies[index % len(base.policies)].id
    family = set(_family(base, policy))
    policies = tuple(
        replace(one, is_spent=one.is_spent or one.id == policy) for one in base.policies
    )
    theirs = {queue.id for queue in base.queues if queue.policy in family}
    others = tuple(one for one in base.queued_groups if one.queue not in theirs)

    plan = decide(replace(base, policies=policies))

    queues = {task.task: one.queue for one in base.queued_groups for task in one.heads}
    assert not {queues[place.task] for place in plan.placed} & theirs
    want = decide(replace(base, policies=policies, queued_groups=others))
    assert (plan.placed, plan.preempted, plan.moved) == (want.placed, want.preempted, want.moved)
    if base.settings.is_enabled:
        codes = {one.code for wait in plan.waiting if wait.queue in theirs for one in wait.reasons}
        assert codes <= {ReasonCode.BUDGET, ReasonCode.PAUSED}


def test_others_borrow_its_reservation_and_what_runs_goes_on() -> None:
    snapshot = scenario(
        settings={"preemption": "reclaim"},
        pools=[{"name": "a", "capacity": {"gpu": 4}}],
        profiles=[{"name": "p1", "request": {"gpu": 1}, "pools": ["a"]}],
        policies=[
            {"name": "team", "reserved": {"gpu": 4}, "profiles": ["p1"], "spent": True},
            {"name": "other", "profiles": ["p1"]},
        ],
        tasks=[
            running("r", "team", "p1", "a", started=1),
            queued("t", "team", "p1", 1),
            *(queued(f"o{number}", "other", "p1", 2) for number in range(3)),
        ],
    )

    plan = decide(snapshot)

    assert set(placed(plan)) == {"o0", "o1", "o2"}
    assert not plan.preempted
    assert reasons(plan) == {"t": "budget"}
    [wait] = plan.waiting
    assert [one.policy for one in wait.reasons[0].details] == ["team"]
