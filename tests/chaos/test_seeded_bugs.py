"""Broken systems: each is made of the real code, run for real, and caught by the checker."""

import ast
from pathlib import Path

import pytest

from tests.chaos import seeded_bugs
from tests.chaos.checker import KINDS
from tests.chaos.history import AcceptedTask, History
from tests.chaos.schedule import parse_fault
from tests.chaos.seeded_bugs import BY_NAME, ROOT, SEEDED, Patch, PatchDoesNotApply, SeededBug
from tests.chaos.world import what_is_missing
from tests.services.requirements import need


@pytest.mark.parametrize("one", SEEDED, ids=lambda one: one.name)
def test_its_patches_aim_at_code_that_is_there(one: SeededBug, tmp_path: Path) -> None:
    for patch in one.patches:
        target = tmp_path / patch.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.write_bytes((ROOT / patch.path).read_bytes())

    seeded_bugs.apply(one.patches, tmp_path)

    for patch in one.patches:
        ast.parse((tmp_path / patch.path).read_text())
    assert one.kinds
    assert set(one.kinds) <= set(KINDS)
    assert [parse_fault(fault) for fault in one.faults]


def test_a_patch_without_its_place_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")

    for old in ("x = 1", "x = 2"):
        with pytest.raises(PatchDoesNotApply, match=r"a\.py"):
            seeded_bugs.apply([Patch("a.py", old, "")], tmp_path)


def test_what_the_checker_does_not_report_is_not_caught() -> None:
    lost = History(accepted=[AcceptedTask("k", "t")])

    assert not seeded_bugs.judged(BY_NAME["no-fence"], lost).is_caught
    assert seeded_bugs.judged(SeededBug("x", ("lost",), (), ()), lost).is_caught
    assert not seeded_bugs.judged(SeededBug("x", (), (), ()), lost).is_caught
    assert seeded_bugs.judged(SeededBug("x", (), (), ()), History()).is_caught


@pytest.mark.chaos
def test_every_broken_system_is_caught_and_the_code_as_it_is_is_clean() -> None:
    reason = what_is_missing()
    if reason:
        need("namespaces", because=reason)

    seen = seeded_bugs.run_seeded([], seed=7)

    assert [one.name for one in seen if not one.is_caught] == []
