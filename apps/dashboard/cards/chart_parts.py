"""What charts of usage have in common: colours, scale, steps. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# The kinds whose colours the series have, and that of all further ones.
SERIES = ("policy", "profile", "pool", "use", "ok")
REST = "wait"
HEIGHT = 200


@dataclass(frozen=True, slots=True)
class BarPart:
    """A piece of a bar; `y` and `height` in pixels from the top."""

    kind: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class StepBar:
    """A day or hour of the chart; positions in percent of the width.

    `label` names all its figures.
    """

    x: str
    width: str
    middle: str
    text: str
    label: str
    parts: tuple[BarPart, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of the scale."""

    y: float
    text: str


def series_kinds(ranked: Sequence[Any]) -> dict[Any, str]:
    """A colour for each of the first keys, in the keys' own order: amounts do not change it."""
    shown = sorted(ranked[: len(SERIES)], key=lambda one: (one is None, str(one).zfill(20)))
    return dict(zip(shown, SERIES, strict=False))


def scale_top(highest: int, *, unit: int) -> int:
    """The end of the scale: 1, 2, 4 or 8 with as many zeros as needed, times `unit`."""
    wanted = max(highest / unit, 0.001)
    step = 0.001
    while step * 8 < wanted:
        step *= 10
    factor = next(one for one in (1, 2, 4, 8) if step * one >= wanted)
    return round(step * factor * unit)
