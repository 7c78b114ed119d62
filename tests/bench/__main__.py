"""`make bench`: every measurement of this machine in one run, each next to what it is judged by.

Names of parts as arguments run only those: engine, passes, enqueue, latency, pages, permissions,
tasks, usage, live; and execution and nodes, which run only when they are named.
"""

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench import (
    engine,
    enqueue,
    execution,
    latency,
    live,
    nodes,
    pages,
    passes,
    permissions,
    tasks,
    usage,
)

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
            f"{parts}; {figure.queries['total']} queries in all, CPU {figure.cpu_ms:.0f} ms",
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
        f"{figure.more_s:+.2f} s compared with podman run, {figure.podman_s:.2f} s",
        f"within {latency.AIM_S} s",
    )


def execution_rows() -> Iterator[Row]:
    """Tasks over SSH with podman, compared with podman by hand over the same SSH."""
    result = execution.measure()
    for figure in result.figures:
        rpm_s, bare_s = statistics.median(figure.rpm), statistics.median(figure.bare)
        yield (
            figure.name,
            f"{rpm_s:.2f} s (worst {max(figure.rpm):.2f} of {len(figure.rpm)})",
            f"podman by hand {bare_s:.2f} s (worst {max(figure.bare):.2f})",
            f"{rpm_s - bare_s:+.2f} s, {figure.ratio:.2f} times",
        )
    placed_s, launched_s, started_s, seen_s = result.steps_s
    yield (
        "of submit to first line",
        f"{placed_s:.3f} s to its place, {launched_s:.3f} s to its launch",
        f"{started_s:.3f} s to its start, {seen_s:.3f} s from its line to the row",
        "",
    )
    before, after = result.load
    yield (
        f"control plane, {result.rounds} rounds",
        f"{result.cpu_s:.2f} s CPU per task",
        f"load {before:.1f} before, {after:.1f} after, with what was measured",
        "",
    )


def node_rows() -> Iterator[Row]:
    """One worker and many nodes."""
    figure = nodes.measure()
    held = f"{figure.threads} threads, {figure.files} files, {figure.memory_mb} MB"
    yield (
        f"one worker, {figure.nodes} nodes, tick {nodes.TICK_S} s",
        f"{figure.cpu_s:.2f} s CPU per tick, {figure.tick_s:.1f} s between answers",
        (
            f"worst {figure.worst_s:.1f} s; ready after {figure.ready_s:.0f} s; {held}; "
            f"the nodes' own CPU {figure.helpers_cpu_s:.1f} s per tick, all on this machine"
        ),
        "",
    )


def page_rows() -> Iterator[Row]:
    """What a page costs."""
    figure = pages.measure()
    yield (
        f"overview, {figure.policies} policies, {figure.tasks:,} tasks",
        f"{figure.overview_ms:.0f} ms in {figure.many} queries",
        f"{figure.empty_ms:.0f} ms a page with nothing; {figure.few} queries with 5 policies",
        "as many queries",
    )


def task_rows() -> Iterator[Row]:
    """Arrays, long lists, bulk actions, and the command line."""
    figure = tasks.measure()
    yield (
        "array of 10,000 enqueued",
        f"{figure.array_ms:.0f} ms",
        f"{figure.array_ms / figure.insert_ms:.1f} times an INSERT of {figure.insert_ms:.1f} ms",
        "50 ms",
    )
    yield (
        "pass while an array of 10,000 waits",
        f"{figure.with_ms:.0f} ms",
        f"{figure.with_ms / figure.without_ms:.2f} of {figure.without_ms:.0f} ms without",
        "no slower",
    )
    yield (
        f"{figure.aborted:,} tasks aborted in bulk",
        f"{figure.abort_ms / 1000:.1f} s",
        f"{figure.abort_cpu_ms / 1000:.1f} s of them computing in the server",
        "5 s",
    )
    yield (
        f"list of {figure.tasks:,} tasks, 50 of them",
        f"{figure.page_ms:.0f} ms, the next {figure.next_ms:.0f} ms",
        f"page {figure.html_ms:.0f} ms",
        "50 ms",
    )
    yield (
        "rpmctl list, CPU",
        f"{figure.list_cpu_ms:.0f} ms",
        f"{figure.list_cpu_ms / figure.bare_cpu_ms:.1f} times python -c pass",
        "250 ms",
    )


def usage_rows() -> Iterator[Row]:
    """Reports of a month, and the booking of attempts."""
    figure = usage.measure()
    by = ", ".join(f"by {name} {ms:.0f} ms" for name, ms in figure.report_ms.items())
    old = f"{figure.old_attempts:,} ended, {figure.samples:,} samples"
    yield (
        f"usage, a month of {figure.rows:,} sums, {figure.live:,} live attempts, {old}",
        f"{by}; page {figure.page_ms:.0f} ms in {figure.queries} queries",
        f"{figure.empty_ms:.0f} ms a page with nothing",
        "100 ms, by owner 500 ms",
    )
    yield (f"usage, an hour of {figure.live:,} attempts", f"{figure.hour_ms:.0f} ms", "", "1 s")
    each_ms = figure.booked_ms / figure.attempts
    yield (
        f"usage, {figure.attempts:,} attempts booked",
        f"{figure.booked_ms:.0f} ms ({each_ms:.2f} ms each)",
        f"{figure.booked_ms / figure.updated_ms:.1f} times one UPDATE of them",
        "",
    )


def permission_rows() -> Iterator[Row]:
    """The cost of permissions."""
    for figure in permissions.measure():
        cells = [
            f"{words} {figure.ms[name]:.0f} ms ({figure.ms[name] / figure.ms['admin']:.2f} times, "
            f"{figure.queries[name]} queries)"
            for name, words in (("many", "100 groups"), ("few", "4 groups"))
        ]
        empty = ", ".join(
            f"{figure.ms[name] / figure.empty_ms[name]:.1f}" for name in ("admin", "many", "few")
        )
        yield (
            f"permissions, {figure.path}",
            f"administrator {figure.ms['admin']:.0f} ms in {figure.queries['admin']} queries",
            "; ".join(cells),
            f"{empty} times a page with nothing",
        )


def live_rows() -> Iterator[Row]:
    """What the pages show, and when."""
    figure = live.measure()
    compared = f"the request itself {statistics.median(figure.posts):.3f} s"
    readers = {
        f"{live.SOCKETS} sockets": figure.sockets,
        f"{live.BROWSERS} browsers": figure.browsers,
    }
    for name, seconds in readers.items():
        yield (
            f"request to the new figure, {name}",
            f"95 of 100 within {live.percentile(seconds, 95):.2f} s",
            f"median {statistics.median(seconds):.2f} s, worst {max(seconds):.2f} s; {compared}",
            f"below {live.AIM_S:.0f} s",
        )


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    "engine": engine_rows,
    "passes": pass_rows,
    "enqueue": enqueue_rows,
    "latency": latency_rows,
    "pages": page_rows,
    "permissions": permission_rows,
    "tasks": task_rows,
    "usage": usage_rows,
    "live": live_rows,
    "execution": execution_rows,
    "nodes": node_rows,
}
# They need the machine for themselves for minutes.
BY_NAME_ONLY = frozenset({"execution", "nodes"})


def main() -> int:
    names = sys.argv[1:] or [name for name in PARTS if name not in BY_NAME_ONLY]
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        _say(f"There is no part {unknown[0]}; the parts are {', '.join(PARTS)}.")
        return 2
    began = time.monotonic()
    for name in names:
        _say(f"measuring: {name} ...")
        # A part that fails later does not take these along.
        _say_rows(list(PARTS[name]()))
    _say(f"\n{time.monotonic() - began:.0f} s in all")
    return 0


def _say_rows(rows: list[Row]) -> None:
    _say(f"\n{_machine()}\n")
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in [("what", "figure", "compared with", "aim"), *rows]:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        _say("  ".join(cells).rstrip())


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
