"""Passes run forward until they rest; pure.

Everything happens at once: placed tasks run, stopping tasks are gone, and so are preempted ones,
or they wait again where that is the queue's setting. The clock of the snapshot does not move.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from apps.allocation.engine import Engine
from apps.allocation.engine.model.plan import Placement, Preempt, Wait
from apps.allocation.engine.model.snapshot import Id, Snapshot
from apps.allocation.simulation.simulated_state import SimulatedState

# A chain of changes that long happens in tests only; what is left then is reported.
MOST_PASSES = 10


@dataclass(frozen=True, slots=True)
class SteadyState:
    """The state in which passes come to rest.

    `placed`, `preempted` and `moved` are the last decision about each task, whatever became of it
    after that; the `snapshot` says what runs in the end. `waiting` is of the last pass.
    """

    snapshot: Snapshot
    passes: int
    is_at_rest: bool
    placed: Mapping[Id, Placement]
    preempted: Mapping[Id, Preempt]
    moved: Collection[Id]
    waiting: tuple[Wait, ...]


def run_to_rest(
    snapshot: Snapshot, *, returning: Collection[Id], most_passes: int = MOST_PASSES
) -> SteadyState:
    """Decide and carry out until a pass decides nothing.

    Args:
        returning: queues whose preempted tasks wait again, in their old place; those of other
            queues are gone.
    """
    engine = Engine()
    state: SimulatedState | None = None
    placed: dict[Id, Placement] = {}
    preempted: dict[Id, Preempt] = {}
    moved: dict[Id, None] = {}
    for number in range(1, most_passes + 1):
        plan = engine.decide(snapshot)
        placed.update((one.task, one) for one in plan.placed)
        preempted.update((one.task, one) for one in plan.preempted)
        moved.update(dict.fromkeys(one.task for one in plan.moved))
        is_at_rest = not (plan.placed or plan.preempted or plan.moved)
        # What was stopping anyway has freed its capacity: another pass uses that.
        if is_at_rest and not any(group.is_stopping for group in snapshot.running):
            break
        if number < most_passes:
            # Mostly the first pass is the only one: nothing has to be carried out then.
            state = state or SimulatedState(snapshot)
            state.end_stopping()
            state.carry_out(plan, snapshot.now_us, returning=returning)
            snapshot = state.snapshot(snapshot.now_us, is_whole=True)
    return SteadyState(
        snapshot=snapshot,
        passes=number,
        is_at_rest=is_at_rest,
        placed=placed,
        preempted=preempted,
        moved=tuple(moved),
        waiting=plan.waiting,
    )
