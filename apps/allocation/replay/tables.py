"""Reports as a table for people, and as data for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from apps.allocation.replay.measures import HOUR, ReplayReport, TeamMeasures, Waits

_HEADINGS = (
    "GPUs",
    "jobs",
    "wait h: mean",
    "median",
    "95th",
    "first start h",
    "used %",
    "preempted",
    "most",
    "lost GPU h",
)


def table(reports: Sequence[ReplayReport]) -> str:
    """One line per regime, what was covered, then the teams of each."""
    rows = [(report.regime.name, _cells(report, report.overall)) for report in reports]
    blocks = [_aligned(("regime", *_HEADINGS), rows), "\n".join(map(_covered, reports))]
    for report in reports:
        teams = [(row.name, _cells(report, row)) for row in report.teams]
        blocks.append(_aligned((report.regime.name, *_HEADINGS), teams))
    blocks += [_estimates(report) for report in reports if report.estimates]
    return "\n\n".join(blocks)


def data(report: ReplayReport) -> dict[str, object]:
    """Seconds are of waiting, hours are GPU hours."""
    return {
        "regime": report.regime.name,
        "terms": asdict(report.terms),
        "overall": _row_data(report, report.overall),
        "teams": [_row_data(report, row) for row in report.teams],
        "covered": asdict(report.covered),
        "refused": report.refused,
        "moments": report.moments,
        "passes": report.passes,
        "unsettled": report.unsettled,
        "estimates": [asdict(one) for one in report.estimates],
    }


def _row_data(report: ReplayReport, row: TeamMeasures) -> dict[str, object]:
    return {
        "name": row.name,
        "gpus": row.reserved,
        "jobs": row.tasks,
        "wait": _waits_data(row.waits),
        "first_wait": _waits_data(row.first_waits),
        "utilisation": round(report.utilisation(row, row.reserved), 4),
        "preemptions": row.preemptions,
        "most_preempted": row.most_preempted,
        "lost_gpu_hours": round(row.lost_s / HOUR, 1),
    }


def _waits_data(waits: Waits) -> dict[str, float]:
    return {
        "mean_s": round(waits.mean_s, 1),
        "median_s": waits.median_s,
        "p95_s": waits.p95_s,
        "longest_s": waits.longest_s,
    }


def _cells(report: ReplayReport, row: TeamMeasures) -> tuple[str, ...]:
    waits = row.waits
    return (
        str(row.reserved),
        f"{row.tasks:,}",
        *(f"{one / HOUR:.2f}" for one in (waits.mean_s, waits.median_s, waits.p95_s)),
        f"{row.first_waits.mean_s / HOUR:.2f}",
        f"{100 * report.utilisation(row, row.reserved):.1f}",
        f"{row.preemptions:,}",
        str(row.most_preempted),
        f"{row.lost_s / HOUR:.0f}",
    )


def _estimates(report: ReplayReport) -> str:
    """Both halves, because the width of the intervals was chosen on the first of one history."""
    rows = [
        (
            f"half {one.half}, {one.basis}",
            (
                f"{one.samples:,}",
                f"{100 * one.inside / one.samples:.1f}",
                f"{100 * one.earlier / one.samples:.1f}",
                f"{100 * one.later / one.samples:.1f}",
            ),
        )
        for one in report.estimates
    ]
    headings = (f"{report.regime.name}: expected starts", "jobs", "in %", "before %", "after %")
    return _aligned(headings, rows)


def _covered(report: ReplayReport) -> str:
    covered = report.covered
    if not report.regime.has_policies:
        return f"{report.regime.name}: {_passes(report)}.{_refused(report)}"
    return (
        f"{report.regime.name}: {covered.tasks:,} jobs kept all work of their team within its "
        f"reservation when submitted; the longest of them waited {covered.longest_wait_s} s. "
        f"For {covered.waited_s} s anything waited that fitted its team's reservation. "
        f"{_passes(report)}{_unsettled(report)}.{_refused(report)}"
    )


def _passes(report: ReplayReport) -> str:
    return "1 pass" if report.passes == 1 else f"{report.passes:,} passes"


def _refused(report: ReplayReport) -> str:
    """Waits without the jobs that were left out come with their number."""
    if not report.refused:
        return ""
    tasks = "1 job asks" if report.refused == 1 else f"{report.refused:,} jobs ask"
    return f" {tasks} for more GPUs than there are, and never ran."


def _unsettled(report: ReplayReport) -> str:
    if not report.unsettled:
        return ""
    return f"; {report.unsettled:,} moments in which jobs preempted each other were cut short"


def _aligned(headings: Sequence[str], rows: Sequence[tuple[str, tuple[str, ...]]]) -> str:
    lines = [tuple(headings), *((name, *cells) for name, cells in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(headings))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in rest)]).rstrip()
        for line in lines
        for rest in [list(zip(line[1:], widths[1:], strict=True))]
    )
