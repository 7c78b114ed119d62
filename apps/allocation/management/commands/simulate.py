"""`manage.py simulate FILE...`: decide scenario files without a database."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.allocation.scenarios.parser import Scenario, read_scenario
from apps.allocation.scenarios.simulation import (
    is_as_expected,
    simulate,
)
from apps.core.errors import BadInput


class Command(BaseCommand):
    help = "Decide one allocation pass for each scenario file and print it as one JSON line."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("paths", nargs="+", type=Path, metavar="FILE|DIR")
        parser.add_argument(
            "--check", action="store_true", help="compare with what the files expect"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """One line per file; with --check a verdict in each, and a count at the end.

        Raises:
            CommandError: with --check, when not every file came out as expected; and always for a
                file that cannot be read.
        """
        passed = failed = 0
        for path in _files(options["paths"]):
            scenario = _read(path)
            outcome = simulate(scenario.snapshot)
            line: dict[str, object] = {"file": str(path), **outcome.data()}
            if options["check"]:
                is_passed = is_as_expected(outcome, scenario)
                passed, failed = passed + is_passed, failed + (not is_passed)
                line["passed"] = is_passed
            self.stdout.write(json.dumps(line, ensure_ascii=False))
        if options["check"]:
            self.stdout.write(f"{passed} passed, {failed} failed")
            if failed:
                raise CommandError(f"{failed} not as expected.", returncode=1)


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(path.rglob("*.json"))
        else:
            yield path


def _read(path: Path) -> Scenario:
    try:
        return read_scenario(path.read_text(encoding="utf-8"))
    except (BadInput, OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: {error}") from error
