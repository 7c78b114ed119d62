"""A minute of `make chaos`, as a test: everything is injected and nothing is broken."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.chaos.checker import check
from tests.chaos.fault_classes import CLASSES
from tests.chaos.history import History
from tests.chaos.world import what_is_missing
from tests.services.requirements import need

ROOT = Path(__file__).resolve().parents[2]
WORDS = (
    *("--seed", "20", "--seconds", "60", "--faults", "50", "--tasks", "60", "--containers", "12"),
    *("--podman-nodes", "1", "--process-nodes", "3"),
)
# A class is drawn once or twice in a minute, and on a busy machine may find nothing to hit then.
MISSED = 3


@pytest.mark.chaos
def test_a_minute_of_every_fault_breaks_nothing(tmp_path: Path) -> None:
    reason = what_is_missing()
    if reason:
        need("namespaces", because=reason)

    counts, report = _faults(tmp_path / "all")

    assert set(counts) == {one.name for one in CLASSES}
    missed = [name for name, count in counts.items() if not count]
    if len(missed) > MISSED:
        more, report = _faults(tmp_path / "missed", "--only", ",".join(missed))
        missed = [name for name in missed if not more[name]]
    assert len(missed) <= MISSED, report


def _faults(folder: Path, *words: str) -> tuple[dict[str, int], str]:
    """How often each class was injected into a run that broke nothing, and its report."""
    # A program of its own, as `make chaos` is: what it starts ends with it.
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *WORDS, *words, "--keep", str(folder)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    report = done.stdout + done.stderr[-4000:]
    assert (folder / "history.json").exists(), report
    history = msgspec.json.decode((folder / "history.json").read_bytes(), type=History)
    assert check(history).breaches == (), report
    counts = re.findall(r"^  fault ([a-z-]+) +([0-9]+)", done.stdout, re.MULTILINE)
    return {name: int(count) for name, count in counts}, report
