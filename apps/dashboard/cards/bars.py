"""Geometry of bars, gauges and timelines: thousandths in, percent of the width out. Pure.

Positions are texts such as `37.5%`, ready for SVG attributes, so no template calculates.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from apps.core.units import milli_text

# The length of the gauge's half circle in its own units (radius 46).
GAUGE_LENGTH = 144.51


def percent(part: int, whole: int) -> str:
    """`part` of `whole` as SVG wants it, between 0% and 100%."""
    if whole <= 0:
        return "0%"
    share = min(max(part / whole, 0.0), 1.0)
    return f"{share * 100:.3f}".rstrip("0").rstrip(".") + "%"


@dataclass(frozen=True, slots=True)
class Segment:
    """A coloured piece: `kind` names its class (`res`, `over_quota`, `claim`, `bad`, ...)."""

    kind: str
    x: str
    width: str


@dataclass(frozen=True, slots=True)
class UsageBar:
    """Use against reservation and limit; the full width is the limit.

    `mark` is where the reservation ends, None without one. `is_open` has no limit: the width is
    then a quarter more than what is used or reserved.
    """

    segments: tuple[Segment, ...]
    mark: str | None
    label: str
    is_open: bool = False
    is_above_limit: bool = False

    @classmethod
    def of(
        cls,
        *,
        used: int,
        reserved: int = 0,
        limit: int | None = None,
        over_quota: int | None = None,
        beyond_word: str = "over quota",
    ) -> Self:
        """The bar of a policy for one key.

        Args:
            used: thousandths held now.
            reserved: the reservation.
            limit: None is no limit.
            over_quota: part of `used` that is over quota; by default what exceeds the reservation.
            beyond_word: how that part is called.
        """
        beyond = max(used - reserved, 0) if over_quota is None else min(over_quota, used)
        within = used - beyond
        top = max(used, reserved)
        scale = limit if limit is not None and limit >= used else top
        if limit is None:
            scale = max(top * 5 // 4, 1)
        pieces: list[tuple[str, int]] = [("res", within)]
        if limit is not None and used > limit:
            pieces += [("over", max(limit - within, 0)), ("bad", used - max(limit, within))]
        else:
            pieces.append(("over", beyond))
        if reserved > used:
            pieces.append(("claim", reserved - used))
        return cls(
            segments=_segments(pieces, scale),
            mark=percent(reserved, scale) if reserved else None,
            label=_label(
                used=used, reserved=reserved, limit=limit, within=within, beyond_word=beyond_word
            ),
            is_open=limit is None,
            is_above_limit=limit is not None and used > limit,
        )


@dataclass(frozen=True, slots=True)
class Gauge:
    """A half circle: what of a pool's capacity is used, and what is configured but not there."""

    used: str
    capacity: str
    used_length: str
    reserved_length: str
    drift_gap: str | None
    drift_length: str | None
    label: str

    @classmethod
    def of(cls, *, reserved_usage: int, over_quota: int, usable: int, configured: int) -> Self:
        """Thousandths of one key; `usable` is below `configured` where nodes are missing."""
        whole = max(configured, usable, 1)
        used = reserved_usage + over_quota
        missing = max(configured - usable, 0)

        def length(part: int) -> str:
            return f"{min(part / whole, 1.0) * GAUGE_LENGTH:.2f}"

        return cls(
            used=milli_text(used),
            capacity=milli_text(configured),
            used_length=length(used),
            reserved_length=length(reserved_usage),
            drift_gap=length(whole - missing) if missing else None,
            drift_length=length(missing) if missing else None,
            label=(
                f"{milli_text(used)} of {milli_text(configured)} GPU in use, "
                f"{milli_text(over_quota)} of them over quota"
                + (f", {milli_text(missing)} unavailable" if missing else "")
            ),
        )


@dataclass(frozen=True, slots=True)
class TaskPhase:
    """A part of a task's life: `kind` is `wait`, `start`, `run` or `over`."""

    kind: str
    began: datetime
    ended: datetime


@dataclass(frozen=True, slots=True)
class PhaseSegment(Segment):
    """A stretch as it is drawn; the browser lays it out again while the last one grows."""

    began: datetime
    ended: datetime


@dataclass(frozen=True, slots=True)
class Flag:
    """A moment in the bar."""

    x: str
    at: datetime


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """One proportional bar of a task's life, with the clock times below it.

    `is_growing`: the last stretch goes on.
    """

    segments: tuple[PhaseSegment, ...]
    flags: tuple[Flag, ...]
    began: datetime
    ended: datetime
    label: str
    is_growing: bool

    @classmethod
    def of(
        cls, phases: list[TaskPhase], *, flags: list[datetime], is_growing: bool = False
    ) -> Self | None:
        """None where there is nothing to draw yet; `flags` are the times of preemptions."""
        if not phases:
            return None
        began, ended = phases[0].began, phases[-1].ended
        whole = max(_micros(began, ended), 1)
        segments = tuple(
            PhaseSegment(
                kind=one.kind,
                x=percent(_micros(began, one.began), whole),
                width=percent(_micros(one.began, one.ended), whole),
                began=one.began,
                ended=one.ended,
            )
            for one in phases
        )
        words = {"wait": "waiting", "start": "starting", "run": "running", "over": "over quota"}
        label = ", ".join(f"{words[s.kind]} {s.began:%H:%M} to {s.ended:%H:%M}" for s in phases)
        marks = tuple(Flag(percent(_micros(began, at), whole), at) for at in flags)
        return cls(segments, marks, began, ended, label, is_growing)


def parts(pieces: list[tuple[str, int]]) -> tuple[Segment, ...]:
    """A bar whose full width is the sum of its pieces."""
    return _segments(pieces, sum(amount for _, amount in pieces))


def _segments(pieces: list[tuple[str, int]], scale: int) -> tuple[Segment, ...]:
    segments = []
    at = 0
    for kind, amount in pieces:
        if amount > 0:
            segments.append(Segment(kind=kind, x=percent(at, scale), width=percent(amount, scale)))
        at += amount
    return tuple(segments)


def _label(*, used: int, reserved: int, limit: int | None, within: int, beyond_word: str) -> str:
    words = [f"{milli_text(used)} GPU in use"]
    if limit is not None:
        words[0] = f"{milli_text(used)} of {milli_text(limit)} GPU in use"
    if reserved:
        words.append(f"{milli_text(within)} within the reservation of {milli_text(reserved)}")
    if used > within:
        words.append(f"{milli_text(used - within)} {beyond_word}")
    if limit is not None and limit > used:
        words.append(f"{milli_text(limit - used)} free to the limit")
    if limit is not None and used > limit:
        words.append(f"{milli_text(used - limit)} above the limit")
    return ", ".join(words)


def _micros(began: datetime, ended: datetime) -> int:
    return max(int((ended - began).total_seconds() * 1_000_000), 0)
