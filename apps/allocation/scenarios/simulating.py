"""A scenario decided, as `manage.py simulate` prints it, and compared with what it expects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from apps.allocation.engine import decide
from apps.allocation.engine.plan import Plan
from apps.allocation.engine.snapshot import Id, Snapshot
from apps.allocation.scenarios.reading import Expectation, Scenario


@dataclass(frozen=True, slots=True)
class Outcome:
    """Who runs where after the pass, and what it did to whom.

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


def simulate(snapshot: Snapshot) -> Outcome:
    """Decide one pass and carry it out on paper."""
    return outcome_of(snapshot, decide(snapshot))


def outcome_of(snapshot: Snapshot, plan: Plan) -> Outcome:
    preempted = {one.task: one.beneficiary for one in plan.preempted}
    running: dict[Id, Id] = {}
    nodes: dict[Id, list[Id]] = {}
    for group in snapshot.running:
        for held in group.tasks:
            if not group.is_stopping and held.task not in preempted:
                running[held.task] = group.pool
                if held.members:
                    nodes[held.task] = [member.node for member in held.members]
    moved: dict[Id, Id] = {}
    for move in plan.moved:
        running[move.task] = move.pool
        nodes[move.task] = [member.node for member in move.members]
        moved[move.task] = nodes[move.task][0]
    for place in plan.placed:
        running[place.task] = place.pool
        if place.members:
            nodes[place.task] = [member.node for member in place.members]
    queued = {task: wait.reasons[0].code.value for wait in plan.waiting for task in wait.tasks}
    return Outcome(running, nodes, queued, preempted, moved)


def meets(outcome: Outcome, expectation: Expectation) -> bool:
    return (
        dict(outcome.running) == dict(expectation.running)
        and set(outcome.queued) == expectation.queued
        and set(outcome.preempted) == expectation.preempted
        and (expectation.moved is None or dict(outcome.moved) == dict(expectation.moved))
    )


def is_as_expected(outcome: Outcome, scenario: Scenario) -> bool:
    """Whether one of the acceptable outcomes came; a file without any expects nothing."""
    expected = scenario.expectations
    return not expected or any(meets(outcome, one) for one in expected)
