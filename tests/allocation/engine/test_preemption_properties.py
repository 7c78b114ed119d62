"""The laws of a pass that reclaims capacity (docs/allocation.md, "What always holds")."""

from __future__ import annotations

from hypothesis import given

from apps.allocation.engine import decide
from tests.allocation.engine.laws import bounds, repetition, service, victims
from tests.allocation.engine.laws.history import Case, moments
from tests.allocation.engine.strategies import claimed_cases

CLAIMED = claimed_cases()


@given(CLAIMED)
def test_nothing_is_exceeded_where_work_stops_for_other_work(case: Case) -> None:
    """Law 1."""
    for moment in moments(case, decide):
        bounds.nothing_is_exceeded(moment)


@given(CLAIMED)
def test_nobody_loses_what_is_protected_or_covered(case: Case) -> None:
    """Law 2."""
    for moment in moments(case, decide):
        bounds.nobody_loses_what_is_theirs(moment)


@given(CLAIMED)
def test_every_victim_is_needed_by_a_task_that_is_placed(case: Case) -> None:
    """Law 5."""
    for moment in moments(case, decide):
        victims.every_victim_is_needed(moment)


@given(CLAIMED)
def test_covered_work_waits_only_where_it_can_take_nothing_more(case: Case) -> None:
    """Law 6."""
    for moment in moments(case, decide):
        service.covered_work_gets_its_claims(moment)


@given(CLAIMED)
def test_passes_that_follow_one_another_come_to_rest(case: Case) -> None:
    """Law 9."""
    for moment in moments(case, decide):
        repetition.passes_come_to_rest(moment)
