"""`manage.py simulate`: scenario files in, one JSON line each out, and a verdict."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"
LIMIT = SCENARIOS / "clearml" / "limit_holds_although_gpus_are_idle.json"


def simulate(*arguments: str) -> list[str]:
    output = StringIO()
    call_command("simulate", *arguments, stdout=output)
    return output.getvalue().splitlines()


def test_each_file_is_one_line_of_json() -> None:
    lines = simulate(str(LIMIT))

    line = json.loads(lines[0])
    assert len(lines) == 1
    assert len(line["running"]) == 10
    assert line["queued"] == {"j11": "limit"}
    assert line["preempted"] == {}


def test_the_worked_example_waits_for_capacity() -> None:
    path = SCENARIOS / "clearml" / "doc_example_reserved_of_both_teams_first.json"

    line = json.loads(simulate(str(path))[0])

    want = dict.fromkeys(["dev3", "dev4", "res3", "res4"], "capacity")
    assert line["queued"] == want


def test_a_folder_is_checked_file_by_file() -> None:
    lines = simulate("--check", str(SCENARIOS / "clearml"))

    assert lines[-1] == "3 passed, 0 failed"
    assert all(json.loads(line)["passed"] for line in lines[:-1])


def test_an_unexpected_outcome_fails_the_check(tmp_path: Path) -> None:
    data = json.loads(LIMIT.read_text(encoding="utf-8"))
    data["expect"]["queued"] = []
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(data), encoding="utf-8")

    with pytest.raises(CommandError, match="1 not as expected"):
        simulate("--check", str(path))


def test_an_unknown_field_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "unknown.json"
    path.write_text('{"pols": []}', encoding="utf-8")

    with pytest.raises(CommandError, match="pols"):
        simulate(str(path))


def test_a_missing_file_is_reported() -> None:
    with pytest.raises(CommandError, match="nowhere"):
        simulate("nowhere.json")
