"""Round times below a chart or the tape. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from apps.dashboard.cards.bars import percent

_DAY = timedelta(days=1)
_STEPS = tuple(timedelta(minutes=one) for one in (1, 5, 15, 30, 60, 120, 180, 360, 720))
_DAYS = (1, 2, 5, 10)
# So near the edges, in parts of the width, a text would be cut off.
_EDGE = 0.015
# Texts so close to each other overlap.
_NEAR = 0.08


@dataclass(frozen=True, slots=True)
class TimeMark:
    """A round time; `x` in percent of the width."""

    x: str
    text: str


def time_marks(
    began: datetime,
    ended: datetime,
    zone: ZoneInfo,
    *,
    most: int = 9,
    except_near: datetime | None = None,
) -> tuple[TimeMark, ...]:
    """Round times of the reader's zone between two moments, at most `most`, evenly apart.

    Args:
        except_near: a moment that has a mark of its own.
    """
    span_s = (ended - began).total_seconds()
    marks = []
    for at in _moments(began, ended, zone, most):
        share = (at - began).total_seconds() / span_s
        if except_near is not None and abs(at - except_near) < (ended - began) * _NEAR:
            continue
        if _EDGE <= share <= 1 - _EDGE:
            marks.append(TimeMark(percent(round(share * 100_000), 100_000), _text(at)))
    return tuple(marks)


def _moments(began: datetime, ended: datetime, zone: ZoneInfo, most: int) -> Iterator[datetime]:
    midnight = datetime.combine(began.astimezone(zone).date(), time(), zone)
    step = next((one for one in _STEPS if (ended - began) / one <= most), None)
    if step is not None:
        at = midnight + (began - midnight) // step * step
        while at <= ended:
            if at >= began:
                yield at.astimezone(zone)
            at += step
        return
    days = next((one for one in _DAYS if (ended - began) / _DAY / one <= most), _DAYS[-1])
    date = midnight.date() + _DAY
    while (at := datetime.combine(date, time(), zone)) <= ended:
        yield at
        date += days * _DAY


def _text(at: datetime) -> str:
    return f"{at:%H:%M}" if at.hour or at.minute else f"{at.day} {at:%b}"
