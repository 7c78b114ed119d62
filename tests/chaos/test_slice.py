"""A minute of `make chaos`, as a test: everything is injected and nothing is broken."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.world import what_is_missing
from tests.services.requirements import need

ROOT = Path(__file__).resolve().parents[2]
WORDS = (
    *("--seed", "20", "--seconds", "60", "--faults", "45", "--tasks", "60", "--containers", "12"),
    *("--podman-nodes", "1", "--process-nodes", "3"),
)


@pytest.mark.chaos
def test_a_minute_of_every_fault_breaks_nothing() -> None:
    reason = what_is_missing()
    if reason:
        need("namespaces", because=reason)

    # A program of its own, as `make chaos` is: what it starts ends with it.
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *WORDS],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
