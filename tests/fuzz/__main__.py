"""`make fuzz`: many requests made from the REST schema, against an installation of its own.

python -m tests.fuzz [--requests 20000] [--seed 7]
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.browser.demonstration import demonstration
from tests.fuzz.fuzzer import fuzz, said


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=7, help="the same seed, the same requests")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="rpm-fuzz-") as folder,
        demonstration(Path(folder)) as installation,
    ):
        outcome = fuzz(installation, requests=asked.requests, seed=asked.seed)
    sys.stdout.write(f"{said(outcome)}\n")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
