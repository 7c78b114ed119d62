"""docs/bounds.md, the table of bounds and the code say the same."""

import re
from pathlib import Path

import pytest

from rpm.bounds import BOUNDS, Bound

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_shows_every_bound_as_the_code_has_it() -> None:
    page = (ROOT / "docs" / "bounds.md").read_text(encoding="utf-8")
    shown = [line for line in page.splitlines() if re.match(r"\| \w+ \| .* \| [\d.]+ \|", line)]

    assert shown == [
        f"| {bound.scope} | {bound.what} | {bound.value} | `{bound.setting}` |" for bound in BOUNDS
    ]


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.setting)
def test_every_bound_has_a_test_that_reaches_it(bound: Bound) -> None:
    file, _, function = bound.test.partition("::")

    assert f"def {function}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")
