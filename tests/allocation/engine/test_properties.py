"""The laws of docs/allocation.md, "What always holds", over generated states and histories.

`make properties` tries them on many more cases; those of preemption are next to this file.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, Phase, given, settings

from apps.allocation.engine import decide
from tests.allocation.engine.laws import bounds, repetition, service
from tests.allocation.engine.laws.history import Case, Moment, moments
from tests.allocation.engine.strategies import any_cases

ANY = any_cases()


@given(ANY)
def test_no_pool_node_gpu_or_limit_is_exceeded(case: Case) -> None:
    """Law 1."""
    for moment in moments(case, decide):
        bounds.nothing_is_exceeded(moment)


@given(ANY)
def test_no_waiting_task_fits_into_what_is_left_free(case: Case) -> None:
    """Law 3, no waste."""
    for moment in moments(case, decide):
        service.nothing_is_wasted(moment)


@given(ANY)
def test_nobody_is_placed_before_an_equal_task_that_ranks_higher(case: Case) -> None:
    """Law 4, no justified envy."""
    for moment in moments(case, decide):
        service.nobody_envies_with_reason(moment)


@given(ANY)
def test_strict_policies_start_nothing_before_an_earlier_task(case: Case) -> None:
    """Law 4, for strict policies."""
    for moment in moments(case, decide):
        service.strict_order_holds(moment)


@given(ANY)
def test_a_second_pass_decides_nothing(case: Case) -> None:
    """Law 7, first half: the victims still stopping."""
    for moment in moments(case, decide):
        repetition.a_second_pass_decides_nothing(moment)


@given(ANY)
def test_the_order_of_rows_and_other_names_change_nothing(case: Case) -> None:
    """Law 7, second half."""
    for moment in moments(case, decide):
        repetition.order_and_names_change_nothing(moment)


@given(ANY)
def test_a_pass_makes_no_more_rounds_than_there_are_runs_and_placements(case: Case) -> None:
    """Law 8."""
    for moment in moments(case, decide):
        repetition.a_pass_ends_soon(moment)


def test_generated_cases_are_not_trivial() -> None:
    """What laws speak of has to occur: of 300 cases at least so many show it."""
    seen: Counter[str] = Counter()

    @settings(
        max_examples=300,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
        derandomize=True,
        database=None,
    )
    @given(ANY)
    def look(case: Case) -> None:
        found = {one for moment in moments(case, decide) for one in _shown(moment)}
        seen.update(found)

    look()

    want = {
        "placed": 120,
        "waits": 200,
        "runs already": 150,
        "victims": 12,
        "several victims": 8,
        "victims still stop": 2,
        "a gang": 15,
        "a fraction": 30,
        "on nodes": 50,
        "moved": 1,
        "several keys": 30,
        "parents": 120,
    }
    assert {name: seen[name] for name in want if seen[name] < want[name]} == {}


def _shown(moment: Moment) -> list[str]:
    snapshot, plan = moment.snapshot, moment.plan
    placed = [moment.queued_groups[one.task] for one in plan.placed]
    facts = {
        "placed": bool(placed),
        "waits": bool(plan.waiting),
        "runs already": bool(snapshot.running),
        "victims": bool(plan.preempted),
        "several victims": len(plan.preempted) > 1,
        "victims still stop": any(one.is_stopping for one in snapshot.running),
        "a gang": any(one.replicas > 1 for one in placed),
        "a fraction": any(one.request.get("gpu") % 1000 for one in placed),
        "on nodes": any(one.members for one in plan.placed),
        "moved": bool(plan.moved),
        "several keys": any(len(one.request.positive()) > 1 for one in placed),
        "parents": any(one.parent is not None for one in snapshot.policies),
    }
    return [name for name, is_shown in facts.items() if is_shown]
