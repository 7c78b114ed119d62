"""Runs every suite: on PostgreSQL all of it, then on SQLite what can differ there, and then, with
the machine to itself, a minute of faults.

    python -m tools.test                  everything, as `make test` does
    python -m tools.test tests/tasks -x   arguments go to pytest

Ends with one line of counts over all runs. With RPM_TEST_STRICT=1 a suite that this machine could
have run, and did not, is a failure.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tools.packages import PACKAGES, can_install, find_program, install_missing

ROOT = Path(__file__).resolve().parent.parent
# pytest's exit status where nothing was selected: fine for a part of the tests.
NOTHING_SELECTED = 5
MOST_WORKERS = 8
ENDING = (signal.SIGINT, signal.SIGTERM)
LINE = 80
# In parallel it would measure the other tests, not the installation that it breaks.
SLICE = "tests/chaos/test_slice.py"


@dataclass(slots=True)
class SuiteTotals:
    """The sum of the runs so far."""

    counts: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    is_good: bool = True


def main(arguments: list[str]) -> int:
    started = time.monotonic()
    missing = install_missing()
    if missing:
        say_what_is_missing(missing)
    totals = SuiteTotals()
    if find_program("initdb"):
        run("PostgreSQL", "postgres", arguments, totals)
        run("SQLite", "sqlite", ["-m", "sqlite", *arguments], totals)
    else:
        run("SQLite", "sqlite", arguments, totals)
        totals.skipped["needs postgres: every suite ran against SQLite only"] += 1
        totals.is_good &= not (is_strict() and can_install())
    if not arguments:
        run(
            "A minute of faults",
            "postgres",
            ["-m", "chaos", "-n", "0", "-o", "faulthandler_timeout=1800", SLICE],
            totals,
        )
    close(totals, seconds=time.monotonic() - started)
    return 0 if totals.is_good else 1


def run(title: str, database: str, arguments: list[str], totals: SuiteTotals) -> None:
    """Run pytest once and add its counts to the outcome."""
    print(f"\n{title}", flush=True)
    with tempfile.TemporaryDirectory(prefix="rpm-test-report-") as folder:
        report = Path(folder) / "report.json"
        # Twice quiet: no closing line of its own, the one at the end counts all runs.
        status = follow(
            [sys.executable, "-m", "pytest", "-qq", *parallel(arguments), *arguments],
            {"RPM_TEST_DATABASE": database, "RPM_TEST_REPORT": str(report)},
        )
        found = json.loads(report.read_text()) if report.exists() else {}
    counts = Counter(found.get("counts", {}))
    if status not in {0, NOTHING_SELECTED}:
        totals.is_good = False
        if not counts["failed"] + counts["error"]:
            print(f"pytest ended with status {status} and no failed test to name.")
            counts["error"] += 1
    totals.counts.update(counts)
    totals.skipped.update(found.get("skipped", {}))


def follow(command: list[str], variables: dict[str, str]) -> int:
    """Run pytest; a signal that ends this program ends pytest, which stops its services first."""
    signals: list[int] = []
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | variables) as process:

        def end(number: int, _frame: FrameType | None) -> None:
            signals.append(number)
            # Ctrl-C in a terminal reaches pytest, too, which takes both for one.
            process.send_signal(signal.SIGTERM)

        previous = [signal.signal(number, end) for number in ENDING]
        status = process.wait()
        for number, handler in zip(ENDING, previous, strict=True):
            signal.signal(number, handler)
    if signals:
        raise SystemExit(128 + signals[0])
    return status


def parallel(arguments: list[str]) -> list[str]:
    """How many processes share the tests; a choice among the arguments goes first."""
    if any(argument.startswith(("-n", "--pdb", "-s")) for argument in arguments):
        return []
    # One more than cores: a quarter of the time a test waits for a server or a container.
    workers = min((os.cpu_count() or 2) + 1, MOST_WORKERS)
    return ["-n", str(workers)]


def say_what_is_missing(missing: list[str]) -> None:
    reason = "apt could not install them" if can_install() else "only root can install them"
    programs = ", ".join(f"{package} ({' or '.join(PACKAGES[package])})" for package in missing)
    print(f"Missing, and {reason}: {programs}. The suites that need them are skipped:")
    print(f"    sudo apt install {' '.join(missing)}", flush=True)


def is_strict() -> bool:
    return os.environ.get("RPM_TEST_STRICT") == "1"


def close(totals: SuiteTotals, *, seconds: float) -> None:
    """Say what was skipped and why, then the line of counts in pytest's own form."""
    if totals.skipped:
        print("\nSkipped:")
        for reason, count in sorted(totals.skipped.items()):
            print(f"  {count:4d}  {reason}")
    print(flush=True)
    print(summary_line(totals.counts, seconds=seconds), flush=True)


def summary_line(counts: Counter[str], *, seconds: float) -> str:
    """Counts as pytest closes a run: `== 2 failed, 7 passed in 3.21s ==`."""
    order = ("failed", "passed", "skipped", "xfailed", "xpassed")
    parts = [f"{counts[name]} {name}" for name in order if counts[name]]
    if counts["error"]:
        parts.append(f"{counts['error']} error{'s' if counts['error'] > 1 else ''}")
    text = f" {', '.join(parts) or 'no tests ran'} in {seconds:.2f}s "
    return text.center(LINE, "=")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
