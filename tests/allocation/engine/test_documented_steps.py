"""docs/engine.md names the steps as the code does."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ENGINE = ROOT / "apps" / "allocation" / "engine"
ROW = re.compile(r"^\| (\d+) ([\w ]+) \| `(\w+)` in `([\w/]+\.py)` \|", re.MULTILINE)
STEPS = ROW.findall((ROOT / "docs" / "engine.md").read_text())


def test_the_documented_steps_are_those_of_the_code_in_their_order() -> None:
    code = (ENGINE / "decision.py").read_text()
    numbered = re.findall(r"# (\d+)\. ([A-Z][a-z]+(?: [a-z]+)?)[:,]", code)

    assert [int(number) for number, *_ in STEPS] == list(range(1, len(STEPS) + 1))
    assert sorted(numbered) == sorted((number, step) for number, step, *_ in STEPS)


def test_every_documented_function_is_where_the_page_says() -> None:
    for _, step, name, path in STEPS:
        source = (ENGINE / path).read_text()
        assert re.search(rf"^ *(def|class) {name}\b", source, re.MULTILINE), step
