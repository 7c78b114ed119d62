"""A report as a file for spreadsheets and billing."""

from collections.abc import Iterator

from django.http import HttpResponse

from apps.core.spreadsheets import csv_line
from apps.tasks.lifecycle.states import AttemptTier
from apps.usage.selectors.rates import cost_of
from apps.usage.selectors.report import PER_GPU_S, Reserved, UsageReport

COUNTED = ("admitted", "ended", "completed", "failed", "preempted")
# How GPUs were used, by the end of the name that readers see.
USE = {"measured": "known", "used": "used", "idle": "idle", "without_process": "no_process"}
# Time of attempts from before tiers were recorded has none.
TIERS = (*AttemptTier.values, "")
HEAD = (
    *("since", "until", "by", "id", "name", "parent_id", "gpu_seconds"),
    *(f"gpu_seconds_{tier or 'tier_not_recorded'}" for tier in TIERS),
    *("gpu_seconds_lost", *COUNTED, "waited_seconds", "gpu_seconds_before"),
    *(f"gpu_seconds_{name}" for name in USE),
    *("gpu_seconds_reservation", "gpu_seconds_reservation_unused"),
    *("cost", "cost_before", "currency"),
)


def usage_csv(report: UsageReport) -> Iterator[str]:
    """Its lines, a heading first. A policy's line contains those of the policies below it."""
    yield csv_line(HEAD)
    for line in report.lines:
        sums = line.sums
        tiers = [gpu_s(sums.tiers[tier]) for tier in TIERS]
        yield csv_line(
            (
                *(report.period.first, report.period.last, report.by.value),
                *(line.key or "", line.label, line.parent or "", gpu_s(sums["held"])),
                *(tiers if report.by.has_pools else [""] * len(tiers)),
                *(gpu_s(sums["lost"]), *(sums[one] for one in COUNTED)),
                *(sums["waited_ms"] / 1000, gpu_s(line.before["held"])),
                *(gpu_s(sums[measure]) for measure in USE.values()),
                *reserved_s(line.reserved),
                *(cost_of(sums["cost"]), cost_of(line.before["cost"]), report.currency),
            )
        )


def csv_response(report: UsageReport) -> HttpResponse:
    """A download of the lines, with the period in its name."""
    period = report.period
    name = f"usage-by-{report.by}-{period.first}-{period.last}.csv"
    return HttpResponse(
        "".join(usage_csv(report)),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def reserved_s(reserved: Reserved | None) -> tuple[float | None, float | None]:
    """Seconds of one GPU that were reserved, and of them unused; none where that is not known."""
    if reserved is None:
        return None, None
    return gpu_s(reserved.held), gpu_s(reserved.unused)


def gpu_s(held: int) -> float:
    """Seconds of one GPU."""
    return held / PER_GPU_S
