"""A history of jobs as a CSV file: columns `submit_s`, `duration_s`, `gpus`, `team`."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from apps.allocation.engine.model.quantities import is_valid_gpu_request
from apps.core.errors import BadInput
from apps.core.units import milli

COLUMNS = ("submit_s", "duration_s", "gpus", "team")


@dataclass(frozen=True, slots=True)
class TraceTask:
    """One job of the history; `number` is its place in the file, from 1.

    `submitted_s` counts from the trace's own zero and may be negative.
    """

    number: int
    submitted_s: int
    duration_s: int
    gpu_milli: int
    team: str


def read_trace(path: Path) -> tuple[TraceTask, ...]:
    """All jobs, in order of submission and of the file.

    Raises:
        BadInput: naming the line and column that is wrong.
    """
    try:
        with _opened(path) as file:
            tasks = list(_tasks(file))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path}: {error}") from error
    if not tasks:
        raise BadInput(f"{path}: holds no job.")
    return tuple(sorted(tasks, key=lambda task: (task.submitted_s, task.number)))


def _opened(path: Path) -> TextIO:
    """Spreadsheets begin their files with a mark, which is no part of the first column's name."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _tasks(file: TextIO) -> Iterator[TraceTask]:
    rows = csv.DictReader(file)
    absent = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
    if absent:
        raise BadInput(f"{file.name}: has no column {', '.join(absent)}.")
    for number, row in enumerate(rows, start=1):
        short = [name for name in COLUMNS if row[name] is None]
        try:
            if short:
                raise ValueError(f"has no {', '.join(short)}")
            yield _task(number, row)
        except (ValueError, BadInput) as error:
            raise BadInput(f"{file.name}, line {rows.line_num}: {error}") from error


def _task(number: int, row: Mapping[str, str]) -> TraceTask:
    task = TraceTask(
        number=number,
        submitted_s=int(row["submit_s"]),
        duration_s=int(row["duration_s"]),
        gpu_milli=milli(row["gpus"].strip()),
        team=row["team"].strip(),
    )
    if task.duration_s < 0:
        raise ValueError("duration_s is negative")
    if not task.gpu_milli or not is_valid_gpu_request(task.gpu_milli):
        raise ValueError("gpus must be a fraction of 1 or a whole number, more than 0")
    if not task.team:
        raise ValueError("team is empty")
    return task
