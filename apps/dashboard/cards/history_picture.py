"""The picture of a history: stacked areas, lines, and the table behind them. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from apps.core.units import MILLI, milli_text
from apps.dashboard.cards.chart_parts import HEIGHT, StepBar, Tick, scale_top
from apps.dashboard.cards.sparklines import span_words
from apps.dashboard.cards.time_axis import TimeMark, time_marks
from apps.usage.selectors.usage_history import SplitHistory
from apps.usage.selectors.used_history import UsedHistory

NONE = "–"
USED, WAITING = "Used", "Waiting for"
# However much waits, the scale ends at so many times what is held or there.
MOST_DEMAND = 4


@dataclass(frozen=True, slots=True)
class Series:
    """What is stacked: thousandths of GPU per step."""

    label: str
    kind: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Area:
    """A series as it is drawn, one unit of x per step, y in pixels from the top."""

    kind: str
    area: str
    line: str


@dataclass(frozen=True, slots=True)
class HistoryChart:
    """`steps` have a title each; `rows` are the figures, in the order of `heads`.

    `demand` is the line of what was held and waited for, empty where nothing waited; `used` that of
    what was used of it, where that is known, and `percent` how much that is of the GPUs.
    """

    areas: tuple[Area, ...]
    demand: str
    used: str
    percent: str
    steps: tuple[StepBar, ...]
    ticks: tuple[Tick, ...]
    marks: tuple[TimeMark, ...]
    series: tuple[Series, ...]
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    capacity: Tick | None
    span: str
    mean: str
    highest: str
    zone: str

    @property
    def unit(self) -> str:
        """The width of a step in parts of all."""
        return f"{1 / len(self.steps):.6f}"

    @property
    def label(self) -> str:
        """What a screen reader hears in place of the picture."""
        capacity = f", capacity now {self.capacity.text}" if self.capacity else ""
        used = f", GPU use {self.percent}" if self.percent else ""
        return (
            f"GPUs held, {self.span}: mean {self.mean}, highest {self.highest}{used}{capacity}. "
            "The table below has the figures."
        )


def history_chart(
    history: SplitHistory,
    series: tuple[Series, ...],
    waiting: Sequence[int] | None,
    usable: int | None,
    *,
    used: UsedHistory,
    hours: int,
    zone: ZoneInfo,
) -> HistoryChart | None:
    """None without a series.

    Args:
        waiting: what tasks waited for, in thousandths of GPU per step; None: they wait elsewhere.
        usable: the capacity now, in thousandths; None: do not say.
    """
    if not series:
        return None
    totals = total_of([one.values for one in series])
    demand = [a + b for a, b in zip(totals, waiting or [0] * len(totals), strict=True)]
    held_top = max(*totals, usable or 0)
    top = scale_top(max(held_top, min(max(demand), MOST_DEMAND * held_top)), unit=MILLI)
    span_s = (history.at[-1] - history.began).total_seconds()
    begins = (history.began, *history.at)
    times = [_stretch(a, b, zone) for a, b in zip(begins, history.at, strict=False)]
    columns: list[tuple[str, Sequence[int | None]]] = [(one.label, one.values) for one in series]
    columns += [(USED, used.used)] if used.is_known else []
    columns += [(WAITING, waiting)] if waiting is not None else []
    return HistoryChart(
        areas=_areas(series, top),
        demand="M0 " + _path([min(one, top) for one in demand], top) if any(waiting or ()) else "",
        used=_broken_path(used.used, top),
        percent="" if used.percent is None else f"{used.percent} %",
        steps=tuple(_steps(times, columns)),
        ticks=tuple(Tick(_y(top * at // 4, top), milli_text(top * at // 4)) for at in range(5)),
        marks=time_marks(history.began, history.at[-1], zone),
        series=series,
        heads=tuple(head for head, _ in columns),
        rows=tuple(
            (text, tuple(_gpu(values[step]) for _, values in columns))
            for step, text in enumerate(times)
        ),
        capacity=None if usable is None else Tick(_y(usable, top), milli_text(usable)),
        span=span_words(span_s, hours=hours),
        mean=_gpu(sum(totals) // len(totals)),
        highest=_gpu(max(totals)),
        zone=str(zone),
    )


def _areas(series: Sequence[Series], top: int) -> tuple[Area, ...]:
    found, below = [], [0] * len(series[0].values)
    for one in series:
        above = [a + b for a, b in zip(below, one.values, strict=True)]
        found.append(Area(one.kind, _outline(above, below, top), "M0 " + _path(above, top)))
        below = above
    return tuple(found)


def _outline(above: Sequence[int], below: Sequence[int], top: int) -> str:
    """The shape between two step lines."""
    back = "".join(f"V{_y(value, top):g}H{at}" for at, value in reversed(list(enumerate(below))))
    return f"M0 {_path(above, top)}{back}Z"


def _path(values: Sequence[int], top: int) -> str:
    """A step line after `M0 `; equal steps are drawn in one."""
    path = f"{_y(values[0], top):g}"
    for at, value in enumerate(values):
        if at and value != values[at - 1]:
            path += f"H{at}V{_y(value, top):g}"
    return f"{path}H{len(values)}"


def _broken_path(values: Sequence[int | None], top: int) -> str:
    """A step line with a gap where nothing is known."""
    path, last = "", None
    for at, value in enumerate(values):
        if value is not None:
            y = f"{_y(min(value, top), top):g}"
            path += f"M{at} {y}" if last is None else f"V{y}"
            path += f"H{at + 1}"
        last = value
    return path


def _steps(
    times: Sequence[str], columns: Sequence[tuple[str, Sequence[int | None]]]
) -> Iterable[StepBar]:
    width = 100 / len(times)
    for at, text in enumerate(times):
        figures = [
            f"{head[0].lower() + head[1:] if head in {USED, WAITING} else head} {_gpu(values[at])}"
            for head, values in columns
            if values[at]
        ]
        yield StepBar(
            x=f"{width * at:.3f}%",
            width=f"{width:.3f}%",
            middle=f"{width * (at + 0.5):.3f}%",
            text="",
            label=f"{text}: {', '.join(figures) or 'nothing held'}",
            parts=(),
        )


def _stretch(began: datetime, ended: datetime, zone: ZoneInfo) -> str:
    """`27 Nov, 14:15 to 14:30`."""
    a, b = began.astimezone(zone), ended.astimezone(zone)
    last = f"{b:%H:%M}" if a.date() == b.date() else f"{b.day} {b:%b}, {b:%H:%M}"
    return f"{a.day} {a:%b}, {a:%H:%M} to {last}"


def _y(value: int, top: int) -> float:
    return round(HEIGHT * (1 - value / top), 1)


def _gpu(value: int | None) -> str:
    """GPUs with one decimal."""
    return NONE if value is None else milli_text(round(value, -2))


def total_of(rows: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip(*rows, strict=True))
