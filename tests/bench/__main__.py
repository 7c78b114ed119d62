"""`make bench`: every measurement of this machine in one run, each beside what it is judged by.

Names of parts as arguments run only those: engine, passes, enqueue, latency.
"""

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench import engine, enqueue, latency, passes

Row = tuple[str, str, str, str]


def engine_rows() -> Iterator[Row]:
    """The pure engine: nothing read, nothing written."""
    for figure in engine.measure():
        decided = f"{figure.placed:,} start, {figure.preempted:,} preempted"
        if figure.decisions:
            decided += f", {figure.median_ms / figure.decisions:.3f} ms each"
        loops = f"{figure.cpu_ms / figure.calibration_ms:.1f} x {figure.calibration_ms:.1f} ms"
        yield (
            f"engine, {figure.name}",
            f"{figure.median_ms:.1f} ms ({decided})",
            f"CPU {figure.cpu_ms:.1f} ms = {loops} of calibration",
            figure.aim,
        )


def pass_rows() -> Iterator[Row]:
    """Full passes on PostgreSQL."""
    figures = passes.measure()
    for figure in figures:
        parts = ", ".join(
            f"{name} {ms:.0f} ms in {figure.queries[name]} queries"
            for name, ms in figure.parts_ms.items()
            if name != "decide"
        )
        decided = f", {figure.placed} start, {figure.preempted} preempted" if figure.placed else ""
        yield (
            f"pass, {figure.name}",
            f"{figure.total_ms:.0f} ms (decide {figure.parts_ms['decide']:.0f} ms{decided})",
            f"{parts}; {figure.queries['total']} queries in all",
            ""
            if decided
            else f"{figure.total_ms / figures[0].total_ms:.2f} of the first, at most {passes.AIM}",
        )


def enqueue_rows() -> Iterator[Row]:
    """Enqueueing over HTTP."""
    figure = enqueue.measure()
    yield (
        f"enqueue, {enqueue.CLIENTS} clients, {enqueue.PROCESSES} processes",
        f"{figure.requests_per_s:.0f} per s",
        f"{figure.share:.2f} of {figure.commits_per_s:.0f} INSERT and COMMIT per s",
        "at least 0.25",
    )


def latency_rows() -> Iterator[Row]:
    """From POST to the container."""
    figure = latency.measure()
    yield (
        "POST to the container's first line",
        f"{figure.rpm_s:.2f} s",
        f"{figure.more_s:+.2f} s beside podman run, {figure.podman_s:.2f} s",
        f"within {latency.AIM_S} s",
    )


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    "engine": engine_rows,
    "passes": pass_rows,
    "enqueue": enqueue_rows,
    "latency": latency_rows,
}


def main() -> int:
    names = sys.argv[1:] or list(PARTS)
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        _say(f"There is no part {unknown[0]}; the parts are {', '.join(PARTS)}.")
        return 2
    began = time.monotonic()
    rows: list[Row] = []
    for name in names:
        _say(f"measuring: {name} ...")
        rows += PARTS[name]()
    _say(f"\n{_machine()}\n")
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in [("what", "figure", "beside", "aim"), *rows]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        _say("  ".join(cells).rstrip())
    _say(f"\n{time.monotonic() - began:.0f} s in all")
    return 0


def _machine() -> str:
    """What the figures are of; how busy it was says how far they can be trusted."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = Path("/proc/loadavg")
    busy = f", load {load.read_text().split()[0]}" if load.exists() else ""
    today = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    return (
        f"{today}: {len(os.sched_getaffinity(0))} cores, {memory_gib:.0f} GiB, "
        f"Python {platform.python_version()}{busy}"
    )


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201  # this is what it is for


if __name__ == "__main__":
    sys.exit(main())
