"""The reconciler against simulated nodes, in any order of events; and broken ones are caught.

`make properties` takes 100,000 steps.
"""

from collections.abc import Callable, Iterable
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from apps.execution import reconciler as real
from apps.execution.leases import NodeClock
from apps.execution.reconciler import (
    Acknowledge,
    Action,
    Kill,
    MemberRow,
    NodeReport,
    NoteLost,
    NoteResult,
    NoteStopped,
    NoteVanished,
    Phase,
    Quarantine,
    UnknownMembers,
)
from tests.execution.machine.steps import STEPS, calm, step
from tests.execution.machine.world import World

STEPS_EACH = 50
PICKS = st.integers(0, 2**16)


class Machine(RuleBasedStateMachine):
    """Steps as Hypothesis chooses them; at the end everything has to come to rest."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @rule(name=st.sampled_from(STEPS), pick=PICKS)
    def happens(self, name: str, pick: int) -> None:
        step(self.world, name, pick)

    def teardown(self) -> None:
        calm(self.world)


def test_nothing_is_lost_and_nothing_doubled_whatever_happens_in_whatever_order() -> None:
    examples = 2000 if settings.get_current_profile_name() == "properties" else 40
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS_EACH,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def walk(world: World, seed: int) -> None:
    """Plain chance; likelier where work gets on."""
    chance = Random(seed)
    often = ("submit", "admit", "launch", "deliver", "ask", "answer")
    for _ in range(150):
        name = chance.choice(often if chance.random() < 0.6 else STEPS)
        step(world, name, chance.randrange(2**16))
    calm(world)


@pytest.mark.parametrize("seed", range(40))
def test_chance_finds_nothing_either(seed: int) -> None:
    walk(World(), seed)


Broken = Callable[
    [tuple[Action, ...], Iterable[MemberRow], NodeReport, UnknownMembers], Iterable[Action]
]


def takes_what_runs_for_lost(
    actions: tuple[Action, ...], rows: Iterable[MemberRow], *_: object
) -> Iterable[Action]:
    yield from actions
    for row in rows:
        if row.phase is Phase.RUNNING:
            yield NoteLost(row.member)


def kills_nobody(actions: tuple[Action, ...], *_: object) -> Iterable[Action]:
    return (one for one in actions if not isinstance(one, Kill))


def throws_results_away(actions: tuple[Action, ...], *_: object) -> Iterable[Action]:
    for one in actions:
        yield Acknowledge(one.report.member) if isinstance(one, NoteResult) else one


def kills_what_it_does_not_know(actions: tuple[Action, ...], *_: object) -> Iterable[Action]:
    return (Kill(one.member) if isinstance(one, Quarantine) else one for one in actions)


def never_hears_of_the_end(actions: tuple[Action, ...], *_: object) -> Iterable[Action]:
    ends = NoteLost | NoteStopped | NoteVanished
    return (one for one in actions if not isinstance(one, ends))


@pytest.mark.parametrize(
    "broken",
    [
        takes_what_runs_for_lost,
        kills_nobody,
        throws_results_away,
        kills_what_it_does_not_know,
        never_hears_of_the_end,
    ],
)
def test_a_broken_reconciler_is_caught(broken: Broken) -> None:
    def decide(
        rows: Iterable[MemberRow], report: NodeReport, unknown: UnknownMembers, *, now: float
    ) -> tuple[Action, ...]:
        kept = list(rows)
        actions = real.reconcile(kept, report, unknown, now=now)
        return tuple(broken(actions, kept, report, unknown))

    assert _is_caught(lambda: World(decide=decide))


def test_leases_without_their_margin_are_caught() -> None:
    def is_over(until_s: float, clock: NodeClock, *, at: float) -> bool:
        return at - clock.read_at >= (until_s - clock.uptime_s) * 0.5

    assert _is_caught(lambda: World(is_over=is_over))


def _is_caught(make: Callable[[], World]) -> bool:
    for seed in range(300):
        try:
            walk(make(), seed)
        except AssertionError:
            return True
    return False
