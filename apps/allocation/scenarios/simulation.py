"""A scenario decided, as `manage.py simulate` prints it, and compared with what it expects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from apps.allocation.engine import decide
from apps.allocation.engine.model.plan import Plan
from apps.allocation.engine.model.snapshot import Id, Snapshot
from apps.allocation.scenarios.parser import Expectation, Scenario


@dataclass(frozen=True, slots=True)
class ScenarioOutcome:
    """Where tasks run after the pass, and what it preempted and moved.

    `queued` gives each waiting task its dominant reason, `preempted` each victim its beneficiary,
    `moved` each moved task its node.
    """

    running: Mapping[Id, Id]
    nodes: Mapping[Id, list[Id]]
    queued: Mapping[Id, str]
    preempted: Mapping[Id, Id]
    moved: Mapping[Id, Id]

    def data(self) -> dict[str, object]:
        return {
            "running": dict(self.running),
            "nodes": dict(self.nodes),
            "queued": dict(self.queued),
            "preempted": dict(self.preempted),
            "moved": dict(self.moved),
        }


def simulate(snapshot: Snapshot) -> ScenarioOutcome:
    """Decide one pass and carry it out on the snapshot."""
    return outcome_of(snapshot, decide(snapshot))


def outcome_of(snapshot: Snapshot, plan: Plan) -> ScenarioOutcome:
    preempted = {one.task: one.beneficiary for one in plan.preempted}
    running: dict[Id, Id] = {}
    nodes: dict[Id, list[Id]] = {}
    for group in snapshot.running:
        for running_task in group.tasks:
            if not group.is_stopping and running_task.task not in preempted:
                running[running_task.task] = group.pool
                if running_task.members:
                    nodes[running_task.task] = [member.node for member in running_task.members]
    moved: dict[Id, Id] = {}
    for move in plan.moved:
        running[move.task] = move.pool
        nodes[move.task] = [member.node for member in move.members]
        moved[move.task] = nodes[move.task][0]
    for placement in plan.placed:
        running[placement.task] = placement.pool
        if placement.members:
            nodes[placement.task] = [member.node for member in placement.members]
    queued = {task: wait.reasons[0].code.value for wait in plan.waiting for task in wait.tasks}
    return ScenarioOutcome(running, nodes, queued, preempted, moved)


def meets(outcome: ScenarioOutcome, expectation: Expectation) -> bool:
    return (
        dict(outcome.running) == dict(expectation.running)
        and set(outcome.queued) == expectation.queued
        and set(outcome.preempted) == expectation.preempted
        and (expectation.moved is None or dict(outcome.moved) == dict(expectation.moved))
    )


def is_as_expected(outcome: ScenarioOutcome, scenario: Scenario) -> bool:
    """Whether one of the acceptable outcomes came; a file without any expects nothing."""
    expected = scenario.expectations
    return not expected or any(meets(outcome, one) for one in expected)
