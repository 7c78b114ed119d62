"""The expected starts on the tape: right of now, as stretches of time."""

from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from zoneinfo import ZoneInfo

from django.utils import timezone

from apps.accounts.models import User
from apps.accounts.selectors import time_zone_of
from apps.allocation.explanation import ExpectedStart, expected_start
from apps.dashboard.cards.bars import Segment
from apps.dashboard.cards.tape_geometry import TimeWindow
from apps.dashboard.cards.tape_query import TapeQuery
from apps.dashboard.selectors.tape import next_tasks
from apps.tasks.models import Task

# As many tasks are shown; each estimate takes some tenths of a second, at most once a minute.
MOST_STARTS = 8
# Once so much time is used, the others come with the next request.
MOST_S = 3.0


@dataclass(frozen=True, slots=True)
class TapeStart:
    """A waiting task; `stretch` is when it probably starts, None where that is not to be drawn.

    `words` say the same; `is_open`: the end of the range is not known, or not shown.
    """

    task: Task
    stretch: Segment | None
    words: str
    sentence: str
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class TapeStarts:
    starts: tuple[TapeStart, ...]
    now_x: str | None


def load_tape_starts(user: User, wanted: TapeQuery) -> TapeStarts:
    """Of the first waiting tasks that the person sees."""
    until, zone = monotonic() + MOST_S, time_zone_of(user)
    found = []
    for task in next_tasks(user, MOST_STARTS):
        if monotonic() > until:
            break
        expected = expected_start(task)
        if expected is not None:
            found.append((task, expected))
    window = wanted.window(timezone.now())
    starts = tuple(start_of(task, expected, window, zone) for task, expected in found)
    return TapeStarts(starts, window.now_x)


def start_of(task: Task, expected: ExpectedStart, window: TimeWindow, zone: ZoneInfo) -> TapeStart:
    """How an estimate is drawn and said."""
    first, last = expected.earliest, expected.latest
    if first is None:
        return TapeStart(task, None, expected.sentence, "")
    today = window.now.astimezone(zone).date()

    def moment(at: datetime) -> str:
        there = at.astimezone(zone)
        return f"{there:%H:%M}" if there.date() == today else f"{there.day} {there:%b %H:%M}"

    words = f"{moment(first)} or later"
    if expected.basis == "now":
        words = "with the next pass"
    elif last is not None:
        words = f"{moment(first)} to {moment(last)}"
    if first >= window.ended:
        return TapeStart(task, None, words, expected.sentence, is_open=True)
    begin = max(first, window.now)
    stretch = Segment("expected", window.x(begin), window.width(begin, last or window.ended))
    is_open = last is None or last > window.ended
    return TapeStart(task, stretch, words, expected.sentence, is_open=is_open)
