"""What will be enqueued: the same as lately."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from apps.allocation.forecast.run_times import SECOND
from apps.allocation.simulation.simulated_state import GroupKey

# What was enqueued within this time is expected again: a day with its night.
SPAN_US = 24 * 3600 * SECOND


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What was enqueued within the last `span_us` before `now_us`: moments, ascending."""

    now_us: int
    span_us: int
    recent: Sequence[tuple[int, GroupKey]] = ()

    def repeated(self, part: int, of: int) -> Iterator[tuple[int, GroupKey]]:
        """The recent time once more, from `now_us` on, repeated without end.

        Begins `part` parts `of` so many into it, so that each future begins elsewhere in it.
        """
        begin = self.now_us - self.span_us
        shift = self.span_us * part // of
        first = bisect_right(self.recent, begin + shift, key=lambda one: one[0])
        if not self.recent:
            return
        for turn in count():
            later = self.now_us - begin - shift + turn * self.span_us
            for at, group_key in self.recent[first if turn == 0 else 0 :]:
                yield at + later, group_key
