"""Counters per key and time, for throttles: shared by all processes over Redis.

While Redis is away each process counts for itself, so that nothing here keeps a request waiting.
"""

import math
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

import redis

from apps.core.shared_redis import SharedRedis

PREFIX = "rpm:count:"
MOST_LOCAL_KEYS = 100_000
WINDOW_S = 60
# How often at most one process shares its counts with the others.
REPORT_EVERY_S = 0.25


class RateCounters:
    """Counters that expire, and keys that are locked for some time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared = SharedRedis()
        # Count and the time at which it is forgotten; used while Redis is away.
        self._local: dict[str, tuple[int, float]] = {}

    def add(self, key: str, amount: int = 1, *, keep_s: float) -> int:
        """Add to the counter of this key, which expires `keep_s` after the last addition."""

        def query(client: redis.Redis) -> int:
            steps = client.pipeline()
            steps.incrby(PREFIX + key, amount)
            steps.pexpire(PREFIX + key, math.ceil(keep_s * 1000))
            return int(steps.execute()[0])

        return self._shared.call(query, lambda: self._add_here(key, amount, keep_s))

    def hold(self, key: str, for_s: float) -> None:
        """Lock the key for a time from now."""

        def query(client: redis.Redis) -> None:
            client.set(PREFIX + key, 1, px=math.ceil(for_s * 1000))

        self._shared.call(query, lambda: self._hold_here(key, for_s))

    def hold_new(self, key: str, for_s: float) -> bool:
        """Lock the key for a time unless it is locked; return whether this call locked it."""

        def query(client: redis.Redis) -> bool:
            return bool(client.set(PREFIX + key, 1, px=math.ceil(for_s * 1000), nx=True))

        return self._shared.call(query, lambda: self._hold_new_here(key, for_s))

    def held_s(self, keys: Iterable[str]) -> float:
        """Seconds until the last of the keys is unlocked; 0 if none is locked."""
        wanted = list(keys)

        def query(client: redis.Redis) -> float:
            if len(wanted) == 1:
                return max(0, int(client.pttl(PREFIX + wanted[0]))) / 1000
            steps = client.pipeline()
            for key in wanted:
                steps.pttl(PREFIX + key)
            return max(0, *(int(left) for left in steps.execute())) / 1000

        return self._shared.call(query, lambda: self._held_here(wanted))

    def forget(self, keys: Iterable[str]) -> None:
        """Reset these keys."""
        wanted = list(keys)

        def query(client: redis.Redis) -> None:
            client.delete(*(PREFIX + key for key in wanted))

        self._shared.call(query, lambda: None)
        with self._lock:
            for key in wanted:
                self._local.pop(key, None)

    def clear(self) -> None:
        """Reset all counters and keys; for tests."""

        def query(client: redis.Redis) -> None:
            keys = list(client.scan_iter(f"{PREFIX}*"))
            if keys:
                client.delete(*keys)

        self._shared.call(query, lambda: None)
        with self._lock:
            self._local.clear()

    def _add_here(self, key: str, amount: int, keep_s: float) -> int:
        now = time.monotonic()
        with self._lock:
            if len(self._local) >= MOST_LOCAL_KEYS:
                self._local = {k: kept for k, kept in self._local.items() if kept[1] > now}
            count, until = self._local.get(key, (0, 0.0))
            count = amount + (count if until > now else 0)
            self._local[key] = (count, now + keep_s)
        return count

    def _hold_here(self, key: str, for_s: float) -> None:
        with self._lock:
            self._local[key] = (1, time.monotonic() + for_s)

    def _hold_new_here(self, key: str, for_s: float) -> bool:
        now = time.monotonic()
        with self._lock:
            if key in self._local and self._local[key][1] > now:
                return False
            self._local[key] = (1, now + for_s)
        return True

    def _held_here(self, keys: list[str]) -> float:
        with self._lock:
            untils = [self._local[key][1] for key in keys if key in self._local]
        return max(0.0, max(untils, default=0.0) - time.monotonic())


@dataclass(slots=True)
class _LocalCount:
    """What a process knows of a key in one window: the shared count, and what is not shared yet."""

    window: int
    shared: int = 0
    unreported: int = 0
    reported_at: float = 0.0


class RateMeter:
    """Requests per key and minute. Asks Redis only a few times per key and second."""

    def __init__(self, counters: RateCounters) -> None:
        self._counters = counters
        self._lock = threading.Lock()
        self._counts: dict[str, _LocalCount] = {}

    def wait_s(self, key: str, *, limit: int) -> int:
        """Count one request; return the seconds to wait if it exceeds the limit, else 0.

        Args:
            limit: per minute; 0 is none.
        """
        if limit == 0:
            return 0
        now = time.time()
        window = int(now // WINDOW_S)
        with self._lock:
            count = self._count_in(key, window)
            count.unreported += 1
            # The last one that is free makes sure by asking the others.
            is_last = count.shared <= limit < count.shared + count.unreported
            is_due = is_last or now - count.reported_at >= REPORT_EVERY_S
            unreported = count.unreported if is_due else 0
            if is_due:
                count.unreported, count.reported_at = 0, now
        if is_due:
            count.shared = self._counters.add(f"{key}:{window}", unreported, keep_s=2 * WINDOW_S)
        is_over = count.shared + count.unreported > limit
        return math.ceil((window + 1) * WINDOW_S - now) if is_over else 0

    def clear(self) -> None:
        """Reset all counts; for tests."""
        self._counts.clear()

    def _count_in(self, key: str, window: int) -> _LocalCount:
        count = self._counts.get(key)
        if count is None or count.window != window:
            if len(self._counts) >= MOST_LOCAL_KEYS:
                self._counts = {k: one for k, one in self._counts.items() if one.window == window}
            count = self._counts[key] = _LocalCount(window)
        return count
