"""A minute of `make chaos`, as a test: everything is injected and nothing is broken."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.chaos.checker import check
from tests.chaos.classes import CLASSES
from tests.chaos.history import History
from tests.chaos.world import what_is_missing
from tests.services.requirements import need

ROOT = Path(__file__).resolve().parents[2]
WORDS = (
    *("--seed", "20", "--seconds", "60", "--faults", "50", "--tasks", "60", "--containers", "12"),
    *("--podman-nodes", "1", "--process-nodes", "3"),
)
# Each class is drawn once or twice in a minute, and on a slow machine one may find nothing to hit.
MISSED = 3


@pytest.mark.chaos
def test_a_minute_of_every_fault_breaks_nothing(tmp_path: Path) -> None:
    reason = what_is_missing()
    if reason:
        need("namespaces", because=reason)

    # A program of its own, as `make chaos` is: what it starts ends with it.
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *WORDS, "--keep", str(tmp_path)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )

    said = done.stdout + done.stderr[-4000:]
    assert (tmp_path / "history.json").exists(), said
    history = msgspec.json.decode((tmp_path / "history.json").read_bytes(), type=History)
    assert check(history).breaches == (), said
    counts = re.findall(r"^  fault ([a-z-]+) +([0-9]+)", done.stdout, re.MULTILINE)
    assert {name for name, _ in counts} == {one.name for one in CLASSES}
    assert [count for _, count in counts].count("0") <= MISSED, said
