"""`manage.py replay TRACE`: a history of jobs, decided again by the engine, without a database."""

from __future__ import annotations

import json
import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from django.core.management.base import BaseCommand, CommandError

from apps.allocation.replay.measures import ReplayTerms, replay
from apps.allocation.replay.regimes import FIFO, REGIMES, STATIC
from apps.allocation.replay.tables import data, table
from apps.allocation.replay.trace import TraceTask, read_trace
from apps.core.errors import BadInput

ALL = "all"
USUAL = (STATIC, FIFO, "reclaim/priority")
DAY = 86_400
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": DAY}
BAR = 30


class Command(BaseCommand):
    help = (
        "Replay a history of jobs (CSV, also .gz, with columns submit_s, duration_s, gpus, team) "
        "and print how long they would have waited."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("trace", type=Path, metavar="TRACE.csv[.gz]")
        parser.add_argument("--gpus", type=int, required=True, help="GPUs of the one pool")
        parser.add_argument(
            "--regime",
            action="append",
            choices=[*REGIMES, ALL],
            metavar="NAME",
            help=f"one of {', '.join(REGIMES)}, or all; may be repeated "
            f"(default: {', '.join(USUAL)})",
        )
        parser.add_argument(
            "--checkpoint",
            type=_checkpoint,
            default=1800,
            metavar="30m",
            help="how often work is saved, counted from its start; `never`: it begins again",
        )
        parser.add_argument(
            "--from",
            dest="start_s",
            type=_moment,
            default=0,
            metavar="0d",
            help="jobs submitted earlier only warm up (default 0)",
        )
        parser.add_argument(
            "--until",
            dest="end_s",
            type=_moment,
            metavar="28d",
            help="jobs submitted from here on are not measured (default: after the last one)",
        )
        parser.add_argument(
            "--estimates",
            type=int,
            metavar="EACH",
            help="also estimate the start of every EACH-th job that waits, and print how many "
            "started within their interval",
        )
        parser.add_argument("--json", action="store_true", help="one JSON line per regime")

    def handle(self, *_args: Any, **options: Any) -> None:
        try:
            tasks = read_trace(options["trace"])
        except BadInput as error:
            raise CommandError(str(error)) from error
        terms = _terms(tasks, options)
        each = options["estimates"]
        if each is not None and each < 1:
            raise CommandError("--estimates must be at least 1.")
        reports = []
        for name in _regimes(options["regime"]):
            with _Bar(self.stderr, name, len(tasks)) as bar:
                reports.append(
                    replay(
                        REGIMES[name],
                        tasks,
                        terms,
                        on_progress=bar.advance,
                        estimates_each=each,
                    )
                )
            if options["json"]:
                self.stdout.write(json.dumps(data(reports[-1])))
        if not options["json"]:
            self.stdout.write(table(reports))


def _terms(tasks: Sequence[TraceTask], options: dict[str, Any]) -> ReplayTerms:
    end_s = options["end_s"]
    if end_s is None:
        end_s = tasks[-1].submitted_s + 1
    if options["gpus"] < 1:
        raise CommandError("--gpus must be at least 1.")
    if not any(options["start_s"] <= task.submitted_s < end_s for task in tasks):
        raise CommandError("No job was submitted between --from and --until.")
    return ReplayTerms(options["gpus"], options["start_s"], end_s, options["checkpoint"])


def _regimes(named: list[str] | None) -> list[str]:
    if not named:
        return list(USUAL)
    return list(REGIMES) if ALL in named else list(dict.fromkeys(named))


def _moment(text: str) -> int:
    """Seconds of `90`, `30m`, `36h`, `-2d`."""
    found = re.fullmatch(r"(-?[0-9]{1,9})([smhd]?)", text)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is not a time such as 90, 30m, 36h or 28d")
    return int(found[1]) * UNITS_S[found[2] or "s"]


def _checkpoint(text: str) -> int | None:
    if text == "never":
        return None
    every_s = _moment(text)
    if every_s < 1:
        raise ArgumentTypeError("must be at least a second, or `never`")
    return every_s


class _Bar:
    """How far a replay is, on a terminal; nothing elsewhere."""

    def __init__(self, stream: Any, name: str, total: int) -> None:
        self._stream = stream
        self._name = name
        self._total = total
        self._done = 0
        self._shown = -1
        self._is_terminal = stream.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._is_terminal:
            self._stream.write("\r\033[K", ending="")

    def advance(self, count: int) -> None:
        """`count` more jobs have ended."""
        self._done += count
        percent = 100 * self._done // self._total
        if self._is_terminal and percent != self._shown:
            self._shown = percent
            filled = "#" * (BAR * percent // 100)
            line = f"\r{self._name:<20} [{filled:<{BAR}}] {percent:3d} %"
            self._stream.write(line, ending="")
