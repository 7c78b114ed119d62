"""Scenario files: what engineers of other systems wrote down comes out here too."""

from __future__ import annotations

from pathlib import Path

import pytest

from apps.allocation.scenarios import read_scenario, snapshot_from_json, snapshot_to_json
from apps.allocation.scenarios.parser import Scenario
from apps.allocation.scenarios.simulation import (
    is_as_expected,
    meets,
    simulate,
)
from apps.core.errors import BadInput

ROOT = Path(__file__).resolve().parents[3]
# The examples of the pages are held to what the pages say of them.
EXAMPLES = ROOT / "docs" / "examples"
FOLDER = ROOT / "tests" / "scenarios"
FILES = sorted([*EXAMPLES.rglob("*.json"), *FOLDER.rglob("*.json")])


def load(path: Path) -> Scenario:
    return read_scenario(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def test_there_are_scenarios_to_look_at() -> None:
    assert len(FILES) >= 127


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_scenario_comes_out_as_expected(path: Path) -> None:
    scenario = load(path)

    outcome = simulate(scenario.snapshot)

    want = scenario.expectations
    assert any(meets(outcome, one) for one in want), outcome.data()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_snapshot_written_and_read_again_gives_the_same_plan(path: Path) -> None:
    snapshot = load(path).snapshot

    again = read_scenario(snapshot_to_json(snapshot)).snapshot

    assert simulate(again) == simulate(snapshot)


def test_an_outcome_that_is_not_expected_is_reported() -> None:
    scenario = load(FOLDER / "clearml" / "limit_holds_although_gpus_are_idle.json")
    outcome = simulate(scenario.snapshot)
    other = load(FOLDER / "clearml" / "doc_example_reserved_of_both_teams_first.json")

    assert is_as_expected(outcome, scenario)
    assert not is_as_expected(outcome, other)


@pytest.mark.parametrize(
    ("data", "want_field"),
    [
        pytest.param({"polls": []}, "polls", id="an unknown field at the top"),
        pytest.param(
            {"pools": [{"name": "a", "capacity": {}, "color": 1}]},
            "pools[0].color",
            id="an unknown field of a pool",
        ),
        pytest.param(
            {"pools": [{"name": "a", "capacity": {"gpu": -1}}]},
            "pools[0].capacity.gpu",
            id="a negative capacity",
        ),
        pytest.param(
            {"profiles": [{"name": "p", "request": {"gpu": "1.5"}}]},
            "profiles[0].request.gpu",
            id="one and a half GPUs",
        ),
        pytest.param(
            {"settings": {"preemption": "sometimes"}},
            "settings.preemption",
            id="an unknown level of preemption",
        ),
        pytest.param(
            {"policies": [{"name": "a", "parent": "b"}]},
            "policies[0].parent",
            id="an unknown parent",
        ),
        pytest.param(
            {"tasks": [{"id": "t", "policy": "a", "profile": "p"}]},
            "tasks[0].policy",
            id="a task of an unknown policy",
        ),
    ],
)
def test_a_wrong_file_is_refused_by_the_name_of_the_field(data: object, want_field: str) -> None:
    with pytest.raises(BadInput) as refused:
        snapshot_from_json(data)

    assert want_field in refused.value.fields


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(BadInput, match="not JSON"):
        read_scenario("{")
