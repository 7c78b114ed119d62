"""Counting per key and time, for throttles: shared by all processes over Redis.

While Redis is away each process counts for itself, so that nothing here keeps a request waiting.
"""

import math
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

import redis

from apps.core.shared import Shared

PREFIX = "rpm:count:"
MOST_KEPT = 100_000
WINDOW_S = 60
# So often at most one process tells the others how often a key was seen.
TELL_EVERY_S = 0.25


class Counters:
    """Numbers that forget themselves, and keys that are held for some time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared = Shared()
        # Count and the time at which it is forgotten; used while Redis is away.
        self._kept: dict[str, tuple[int, float]] = {}

    def add(self, key: str, amount: int = 1, *, keep_s: float) -> int:
        """Add to the number of this key, which is forgotten `keep_s` after the last addition."""

        def ask(client: redis.Redis) -> int:
            steps = client.pipeline()
            steps.incrby(PREFIX + key, amount)
            steps.pexpire(PREFIX + key, math.ceil(keep_s * 1000))
            return int(steps.execute()[0])

        return self._shared.asked(ask, lambda: self._add_here(key, amount, keep_s))

    def hold(self, key: str, for_s: float) -> None:
        """Hold the key for so long from now."""

        def ask(client: redis.Redis) -> None:
            client.set(PREFIX + key, 1, px=math.ceil(for_s * 1000))

        self._shared.asked(ask, lambda: self._hold_here(key, for_s))

    def hold_new(self, key: str, for_s: float) -> bool:
        """Hold the key for so long where it is not held yet; whether this call did."""

        def ask(client: redis.Redis) -> bool:
            return bool(client.set(PREFIX + key, 1, px=math.ceil(for_s * 1000), nx=True))

        return self._shared.asked(ask, lambda: self._hold_new_here(key, for_s))

    def held_s(self, keys: Iterable[str]) -> float:
        """For how long the one that is held longest is held yet; 0 where none is."""
        wanted = list(keys)

        def ask(client: redis.Redis) -> float:
            steps = client.pipeline()
            for key in wanted:
                steps.pttl(PREFIX + key)
            return max(0, *(int(left) for left in steps.execute())) / 1000

        return self._shared.asked(ask, lambda: self._held_here(wanted))

    def forget(self, keys: Iterable[str]) -> None:
        """Begin again with these keys."""
        wanted = list(keys)

        def ask(client: redis.Redis) -> None:
            client.delete(*(PREFIX + key for key in wanted))

        self._shared.asked(ask, lambda: None)
        with self._lock:
            for key in wanted:
                self._kept.pop(key, None)

    def clear(self) -> None:
        """Begin again with everything; for tests."""

        def ask(client: redis.Redis) -> None:
            keys = list(client.scan_iter(f"{PREFIX}*"))
            if keys:
                client.delete(*keys)

        self._shared.asked(ask, lambda: None)
        with self._lock:
            self._kept.clear()

    def _add_here(self, key: str, amount: int, keep_s: float) -> int:
        now = time.monotonic()
        with self._lock:
            if len(self._kept) >= MOST_KEPT:
                self._kept = {k: kept for k, kept in self._kept.items() if kept[1] > now}
            count, until = self._kept.get(key, (0, 0.0))
            count = amount + (count if until > now else 0)
            self._kept[key] = (count, now + keep_s)
        return count

    def _hold_here(self, key: str, for_s: float) -> None:
        with self._lock:
            self._kept[key] = (1, time.monotonic() + for_s)

    def _hold_new_here(self, key: str, for_s: float) -> bool:
        now = time.monotonic()
        with self._lock:
            if key in self._kept and self._kept[key][1] > now:
                return False
            self._kept[key] = (1, now + for_s)
        return True

    def _held_here(self, keys: list[str]) -> float:
        with self._lock:
            untils = [self._kept[key][1] for key in keys if key in self._kept]
        return max(0.0, max(untils, default=0.0) - time.monotonic())


@dataclass(slots=True)
class _Seen:
    """What a process knows of a key in one window: the shared count, and what it did not tell."""

    window: int
    shared: int = 0
    untold: int = 0
    told_at: float = 0.0


class Meter:
    """Requests per key and minute. Costs a look at Redis only a few times per key and second."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}

    def wait_s(self, key: str, *, limit: int) -> int:
        """Count one more; how many seconds to wait where that was too much, else 0.

        Args:
            limit: per minute; 0 is none.
        """
        if limit == 0:
            return 0
        now = time.time()
        window = int(now // WINDOW_S)
        with self._lock:
            seen = self._seen_in(key, window)
            seen.untold += 1
            # The last one that is free makes sure by asking the others.
            is_last = seen.shared <= limit < seen.shared + seen.untold
            is_due = is_last or now - seen.told_at >= TELL_EVERY_S
            untold = seen.untold if is_due else 0
            if is_due:
                seen.untold, seen.told_at = 0, now
        if is_due:
            seen.shared = self._counters.add(f"{key}:{window}", untold, keep_s=2 * WINDOW_S)
        is_over = seen.shared + seen.untold > limit
        return math.ceil((window + 1) * WINDOW_S - now) if is_over else 0

    def clear(self) -> None:
        """Begin again; for tests."""
        self._seen.clear()

    def _seen_in(self, key: str, window: int) -> _Seen:
        seen = self._seen.get(key)
        if seen is None or seen.window != window:
            if len(self._seen) >= MOST_KEPT:
                self._seen = {k: one for k, one in self._seen.items() if one.window == window}
            seen = self._seen[key] = _Seen(window)
        return seen
