"""The laws of docs/allocation.md, "What always holds", each a check of one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.allocation.engine.laws.bounds import nobody_loses_what_is_theirs, nothing_is_exceeded
from tests.allocation.engine.laws.history import Moment
from tests.allocation.engine.laws.repetition import (
    a_pass_ends_soon,
    a_second_pass_decides_nothing,
    order_and_names_change_nothing,
    passes_come_to_rest,
)
from tests.allocation.engine.laws.service import (
    covered_work_gets_its_claims,
    nobody_envies_with_reason,
    nothing_is_wasted,
    strict_order_holds,
)
from tests.allocation.engine.laws.victims import every_victim_is_needed


@dataclass(frozen=True)
class Law:
    """One law, or a half of one: raises AssertionError where a pass breaks it."""

    name: str
    number: int
    check: Callable[[Moment], None]
    # Says something only where preemption is on.
    is_of_taking: bool = False


LAWS = (
    Law("nothing_is_exceeded", 1, nothing_is_exceeded),
    Law("nobody_loses_what_is_theirs", 2, nobody_loses_what_is_theirs, is_of_taking=True),
    Law("nothing_is_wasted", 3, nothing_is_wasted),
    Law("nobody_envies_with_reason", 4, nobody_envies_with_reason),
    Law("strict_order_holds", 4, strict_order_holds),
    Law("every_victim_is_needed", 5, every_victim_is_needed, is_of_taking=True),
    Law("covered_work_gets_its_claims", 6, covered_work_gets_its_claims, is_of_taking=True),
    Law("a_second_pass_decides_nothing", 7, a_second_pass_decides_nothing),
    Law("order_and_names_change_nothing", 7, order_and_names_change_nothing),
    Law("a_pass_ends_soon", 8, a_pass_ends_soon),
    Law("passes_come_to_rest", 9, passes_come_to_rest, is_of_taking=True),
)
BY_NAME = {law.name: law for law in LAWS}
