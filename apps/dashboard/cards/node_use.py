"""What a node used of its CPUs, memory, disk and network over time, as its page shows it."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from apps.accounts.models import User
from apps.accounts.selectors import time_zone_of
from apps.core import clock
from apps.dashboard.cards.gpu_use import curve_path
from apps.nodes.models import Node
from apps.tasks.selectors.node_use import NodeUseStep, node_use_steps

SPANS = {3: "3 h", 24: "24 h", 7 * 24: "7 d", 14 * 24: "14 d"}
USUAL = 24
# Rows of the table, and points of a curve, at most.
ROWS = 96
NONE = "–"
# Powers of 1024, as everywhere on pages.
_UNITS = ("B", "KB", "MB", "GB", "TB")


@dataclass(frozen=True, slots=True)
class Curve:
    """One figure over time; `top` is what its upper edge stands for."""

    name: str
    path: str
    top: str
    mean: str
    highest: str

    @property
    def label(self) -> str:
        """What a screen reader hears in place of the picture."""
        return f"{self.name}: mean {self.mean}, highest {self.highest}. The table has the figures."


@dataclass(frozen=True, slots=True)
class NodeUseCard:
    """`rows` are the figures of the curves in their order, with their time."""

    curves: tuple[Curve, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    zone: str


@dataclass(frozen=True, slots=True)
class _Figure:
    """Reads one figure of a step; `top`: what there is of it, None: as much as was used."""

    name: str
    of: Callable[[NodeUseStep], int | None]
    text: Callable[[float], str]
    top: float | None = None


def load_node_use(user: User, node: Node, hours: int) -> NodeUseCard | None:
    """The last hours of a node; None where nothing of it is known."""
    now, zone = clock.now(), time_zone_of(user)
    steps = node_use_steps(node, since=now - timedelta(hours=hours))
    if not steps:
        return None
    return node_use_card(steps, node, began=now - timedelta(hours=hours), ended=now, zone=zone)


def node_use_card(
    steps: Sequence[NodeUseStep], node: Node, *, began: datetime, ended: datetime, zone: ZoneInfo
) -> NodeUseCard:
    """Means of at most `ROWS` equal stretches of time in which there were samples."""
    figures = _figures(node)
    stretch = (ended - began) / ROWS
    found: defaultdict[int, list[NodeUseStep]] = defaultdict(list)
    for step in steps:
        found[max((step.at - began) // stretch, 0)].append(step)
    times = {at: began + at * stretch for at in sorted(found)}
    columns = [
        [(time, _mean([one.of(step) for step in found[at]])) for at, time in times.items()]
        for one in figures
    ]
    return NodeUseCard(
        curves=tuple(
            _curve(one, points, began, ended) for one, points in zip(figures, columns, strict=True)
        ),
        rows=tuple(
            (
                _moment(time.astimezone(zone)),
                tuple(
                    NONE if points[row][1] is None else one.text(points[row][1] or 0)
                    for one, points in zip(figures, columns, strict=True)
                ),
            )
            for row, time in enumerate(times.values())
        ),
        zone=str(zone),
    )


def _figures(node: Node) -> tuple[_Figure, ...]:
    mb = 2**20

    def size(value: float) -> str:
        return _size(value * mb)

    def speed(value: float) -> str:
        return f"{_size(value)}/s"

    return (
        _Figure("CPU", lambda step: step.cpu_percent, lambda value: f"{round(value)} %", 100),
        _Figure("Memory", lambda step: step.memory_mb, size, node.report.get("memory_mb")),
        _Figure("Disk", lambda step: step.disk_mb, size, node.report.get("disk_mb")),
        _Figure("Network, received", lambda step: step.received, speed),
        _Figure("Network, sent", lambda step: step.sent, speed),
    )


def _curve(
    figure: _Figure,
    points: Sequence[tuple[datetime, float | None]],
    began: datetime,
    ended: datetime,
) -> Curve:
    known = [value for _, value in points if value is not None]
    highest = max(known, default=0.0)
    top = max(figure.top or 0, highest, 1)
    return Curve(
        name=figure.name,
        path=curve_path(points, began, ended, top=top),
        top=figure.text(top),
        mean=figure.text(sum(known) / len(known)) if known else NONE,
        highest=figure.text(highest) if known else NONE,
    )


def _mean(values: Sequence[int | None]) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) / len(known) if known else None


def _moment(at: datetime) -> str:
    return f"{at.day} {at:%b, %H:%M}"


def _size(value: float) -> str:
    """`1.4 GB`."""
    unit = 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    digits = 0 if value >= 100 or not unit else 1
    return f"{value:.{digits}f} {_UNITS[unit]}"
