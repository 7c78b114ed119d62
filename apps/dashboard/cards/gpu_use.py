"""How a task uses its GPUs, as its page shows it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from apps.core.units import milli_text
from apps.tasks.models import Attempt, AttemptUse
from apps.tasks.models.gpu_use import SLOT
from apps.tasks.selectors.gpu_use import GpuUseStep
from apps.usage.selectors.current_usage import GPU

# The curve's own units, as in its template.
WIDTH, HEIGHT = 400, 64
MOST_POINTS = 200


@dataclass(frozen=True, slots=True)
class GpuUseCurve:
    """Utilisation over time: a path with a gap where nothing is known, from 0 to 100 %."""

    path: str
    began: datetime
    ended: datetime

    @classmethod
    def of(cls, steps: Sequence[GpuUseStep]) -> Self | None:
        """None with less than two known points."""
        points = list(_thinned(steps))
        if sum(percent is not None for _, percent in points) < 2:
            return None
        began, ended = steps[0].at, steps[-1].at
        return cls(curve_path(points, began, ended, top=100), began, ended)


@dataclass(frozen=True, slots=True)
class GpuUseCard:
    """`use` is None where its nodes do not report it."""

    generation: int
    gpus: str
    is_live: bool
    use: AttemptUse | None
    idle_since: datetime | None
    curve: GpuUseCurve | None

    @classmethod
    def of(cls, attempt: Attempt, steps: Sequence[GpuUseStep]) -> Self | None:
        """None for an attempt that has not begun or holds no GPU."""
        gpu = attempt.request.get(GPU, 0) * attempt.replicas
        if attempt.started_at is None or not gpu:
            return None
        use: AttemptUse | None = getattr(attempt, "use", None)
        return cls(
            generation=attempt.generation,
            gpus=milli_text(gpu),
            is_live=attempt.ended_at is None,
            use=use,
            idle_since=use.idle_since(attempt.started_at) if use else None,
            curve=GpuUseCurve.of(steps),
        )

    @property
    def mean_text(self) -> str:
        """The mean utilisation, or that it is not known."""
        percent = self.use.percent if self.use else None
        return "unknown" if percent is None else f"{percent} %"

    @property
    def memory_text(self) -> str:
        """The most in use on one GPU, in GiB."""
        return f"{self.use.memory_mb / 1024:.1f} GiB" if self.use else ""

    @property
    def energy_text(self) -> str:
        """In watt hours or kilowatt hours; empty where it is not known."""
        wh = self.use.energy_wh if self.use else 0
        if not wh:
            return ""
        return f"{wh / 1000:.1f} kWh" if wh >= 1000 else f"{wh:.0f} Wh"


def curve_path(
    points: Sequence[tuple[datetime, float | None]],
    began: datetime,
    ended: datetime,
    *,
    top: float,
) -> str:
    """A line through the points, from 0 at the bottom, with gaps where nothing is known."""
    span_s = (ended - began).total_seconds()
    gap_s = max(span_s / MOST_POINTS, SLOT.total_seconds()) * 1.5
    path, last = [], None
    for at, value in points:
        if value is not None:
            is_joined = last is not None and (at - last).total_seconds() <= gap_s
            x = WIDTH * (at - began).total_seconds() / span_s
            y = HEIGHT - 1 - (HEIGHT - 2) * value / top
            path.append(f"{'L' if is_joined else 'M'}{x:.4g} {y:.4g}")
            last = at
    return "".join(path)


def _thinned(steps: Sequence[GpuUseStep]) -> Iterator[tuple[datetime, int | None]]:
    """Means of neighbours, where there are more than can be seen."""
    size = -(-len(steps) // MOST_POINTS)
    for start in range(0, len(steps), size or 1):
        part = steps[start : start + size]
        known = [one.percent for one in part if one.percent is not None]
        yield part[0].at, round(sum(known) / len(known)) if known else None
