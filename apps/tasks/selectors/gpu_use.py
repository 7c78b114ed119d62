"""How an attempt used its GPUs over time, as far as samples are kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Max, Sum

from apps.tasks.models import Attempt, DeviceUse


@dataclass(frozen=True, slots=True)
class GpuUseStep:
    """Five minutes from `at`: the mean utilisation of all its GPUs, in percent (None: unknown).

    `memory_mb` is the most that was in use on one of them, in 2^20 bytes.
    """

    at: datetime
    percent: int | None
    memory_mb: int


def gpu_use_by_pool(since: datetime) -> dict[int, float]:
    """The mean utilisation of held GPUs from 0 to 1, of pools where it was sampled since then."""
    rows = DeviceUse.objects.filter(at__gte=since, known_ms__gt=0).order_by()
    sums = rows.values_list("held__member__pool").annotate(Sum("busy"), Sum("known_ms"))
    return {pool: busy / known / 100 for pool, busy, known in sums}


def gpu_use_steps(attempt: Attempt) -> Sequence[GpuUseStep]:
    """Oldest first, in one query; five minutes without a sample are missing."""
    rows = DeviceUse.objects.filter(held__member__attempt=attempt).order_by("at").values("at")
    found = rows.annotate(sum_busy=Sum("busy"), sum_known=Sum("known_ms"), most_mb=Max("memory_mb"))
    return [
        GpuUseStep(
            row["at"],
            round(row["sum_busy"] / row["sum_known"]) if row["sum_known"] else None,
            row["most_mb"],
        )
        for row in found
    ]
