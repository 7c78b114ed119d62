"""The tape as it is drawn: rows of nodes or policies, time from left to right. Pure.

Positions in time are percent of the width, those across are pixels, ready for SVG attributes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from apps.dashboard.cards.bars import Segment, percent
from apps.dashboard.cards.time_axis import TimeMark

# Pixels of one GPU, many or few, and of the lowest row: as much as its name needs.
GPU_PX = (7, 14)
ROW_PX = 30
# As many pixels as all rows of a small installation may have.
FEW_PX = 480
# Narrower than this, in parts of the width, and lower, in pixels, a block has no name in it; on a
# phone it has to be wider.
NAMED_WIDTH = 0.04
NAMED_WIDTH_ON_PHONE = 0.16
NAMED_PX = 13


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """What the tape shows; `now` may lie after its end."""

    began: datetime
    ended: datetime
    now: datetime

    def share(self, at: datetime) -> float:
        """Where a moment is, from 0 to 1."""
        part = (at - self.began) / (self.ended - self.began)
        return min(max(part, 0.0), 1.0)

    def x(self, at: datetime) -> str:
        """The same in percent."""
        return _percent(self.share(at))

    def width(self, began: datetime, ended: datetime) -> str:
        return _percent(max(self.share(ended) - self.share(began), 0.0))

    @property
    def now_x(self) -> str | None:
        """None where now is not in it."""
        return self.x(self.now) if self.now < self.ended else None


@dataclass(frozen=True, slots=True)
class TapePiece:
    """What an attempt held in one row; `offset` and `amount` in thousandths of GPU.

    `limit` is until when it may go on; None: it has ended, or has no limit. `over` are the times
    in which it counted as over quota.
    """

    began: datetime
    ended: datetime
    offset: int
    amount: int
    kind: str
    name: str
    label: str
    href: str = ""
    is_live: bool = False
    limit: datetime | None = None
    is_preempted: bool = False
    over: tuple[tuple[datetime, datetime], ...] = ()


@dataclass(frozen=True, slots=True)
class TapeBlock:
    """A piece as it is drawn; `over` are stretches of it, `ahead` is what it may still take."""

    x: str
    width: str
    y: float
    height: float
    kind: str
    href: str
    text: str
    is_wide: bool
    label: str
    is_preempted: bool
    over: tuple[Segment, ...]
    ahead: Segment | None


@dataclass(frozen=True, slots=True)
class TapeRow:
    """A node, or a policy; `closed` are its devices that nobody can have: y and height."""

    name: str
    detail: str
    note: str
    href: str
    height: float
    blocks: tuple[TapeBlock, ...]
    closed: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class TapeSection:
    """A pool, or all policies."""

    name: str
    rows: tuple[TapeRow, ...]


@dataclass(frozen=True, slots=True)
class TapeAxis:
    """Round times, and now; `words` is the time shown."""

    marks: tuple[TimeMark, ...]
    now_x: str | None
    words: str
    zone: str


def row_scale(gpus: int, total: int) -> float:
    """Pixels per GPU of a row with so many, of so many in all."""
    usual = min(max(FEW_PX / max(total, 1), GPU_PX[0]), GPU_PX[1])
    return max(round(usual, 1), ROW_PX / gpus) if gpus else ROW_PX


def blocks_of(
    pieces: Iterable[TapePiece], window: TimeWindow, scale: float
) -> tuple[TapeBlock, ...]:
    """In the order of time, then from top to bottom: that in which the keyboard goes."""
    order = sorted(pieces, key=lambda one: (one.began, one.offset))
    return tuple(_block(one, window, scale) for one in order if one.began < window.ended)


def _block(piece: TapePiece, window: TimeWindow, scale: float) -> TapeBlock:
    width = window.share(piece.ended) - window.share(piece.began)
    height = max(round(piece.amount * scale / 1000, 1), 2)
    is_named = width >= NAMED_WIDTH and height >= NAMED_PX
    return TapeBlock(
        x=window.x(piece.began),
        width=_percent(max(width, 0.0015)),
        y=round(piece.offset * scale / 1000, 1),
        height=height - (1 if height > 3 else 0),
        kind=piece.kind,
        href=piece.href,
        text=piece.name if is_named else "",
        is_wide=width >= NAMED_WIDTH_ON_PHONE,
        label=piece.label,
        is_preempted=piece.is_preempted,
        over=_stretches(piece, window),
        ahead=_ahead(piece, window),
    )


def _stretches(piece: TapePiece, window: TimeWindow) -> tuple[Segment, ...]:
    """Where it is hatched, in percent of the block itself."""
    first, last = window.share(piece.began), window.share(piece.ended)
    found = []
    for began, ended in piece.over:
        a, b = max(window.share(began), first), min(window.share(ended), last)
        if b > a and last > first:
            whole = last - first
            found.append(Segment("over", _percent((a - first) / whole), _percent((b - a) / whole)))
    return tuple(found)


def _ahead(piece: TapePiece, window: TimeWindow) -> Segment | None:
    until = piece.limit or window.ended
    if not piece.is_live or window.now_x is None or until <= window.now:
        return None
    return Segment("ahead", window.now_x, window.width(window.now, until))


def contiguous(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as stretches of (first, count)."""
    found: list[tuple[int, int]] = []
    for one in indices:
        if found and one == sum(found[-1]):
            found[-1] = found[-1][0], found[-1][1] + 1
        else:
            found.append((one, 1))
    return found


def _percent(share: float) -> str:
    return percent(round(share * 100_000), 100_000)
