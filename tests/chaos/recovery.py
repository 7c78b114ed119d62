"""How long the installation needs until it works again after a fault."""

import statistics
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import httpx
import psycopg

from tests.chaos.fault_classes import BY_NAME
from tests.chaos.machine import boot_clock

STEP_S = 0.25
PASS = "pass"
# One process of several: the others do its work, but its own absence has to be noticed.
LOOK: Final = """
SELECT 'node:' || name, last_seen_at::text FROM nodes_node WHERE state = 'healthy'
UNION ALL SELECT 'pass', last_at::text FROM allocation_passstate
"""


@dataclass(frozen=True, slots=True)
class Span:
    """A fault as it was really done, on the boot clock."""

    name: str
    target: str
    begun_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class Recovery:
    """How long after a fault the last thing that it hit gave a sign of life, and which that was."""

    span: Span
    seconds: float
    slowest: str

    def __str__(self) -> str:
        return f"{self.span.name} of {self.span.target}, {self.slowest}"


@dataclass(slots=True)
class Sampler:
    """Looks from outside, several times a second, what gives a sign of life.

    Args:
        url: of the database, not of the proxy.
        webs: name -> address.
    """

    url: str
    webs: dict[str, str]
    signs: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    is_over: threading.Event = field(default_factory=threading.Event)
    _last: dict[str, str] = field(default_factory=dict)

    def start(self) -> threading.Thread:
        """Sample from a thread of its own until `is_over` is set."""
        thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        with httpx.Client(timeout=1) as http:
            while not self.is_over.wait(STEP_S):
                for name, address in self.webs.items():
                    with suppress(httpx.HTTPError):
                        if http.get(f"{address}/healthz").status_code == 200:
                            self.signs[name].append(boot_clock())
                with suppress(psycopg.Error):
                    self._ask_database()

    def _ask_database(self) -> None:
        patience = "-c statement_timeout=1000"
        with psycopg.connect(
            self.url, autocommit=True, connect_timeout=2, options=patience
        ) as connection:
            found = connection.execute(LOOK).fetchall()
        at = boot_clock()
        for name, value in found:
            # A change is the sign, whatever clock wrote the value.
            if value is not None and self._last.get(name) not in {None, value}:
                self.signs[name].append(at)
            self._last[name] = value


def recoveries(
    spans: Sequence[Span], signs: dict[str, list[float]], *, until_s: float
) -> list[Recovery]:
    """Seconds from the end of each fault to the first sign of life of everything that it hit.

    Time in which another fault held the same thing does not count: nothing could recover then.
    What never gave a sign counts until `until_s`.
    """
    found = []
    for span in spans:
        slowest = Recovery(span, 0.0, "-")
        for name in affected(span, signs):
            sign_s = next((at for at in signs[name] if at >= span.ended_s), until_s)
            others = [
                other for other in spans if other is not span and name in affected(other, signs)
            ]
            held_s = covered_s(others, span.ended_s, sign_s)
            seconds = sign_s - span.ended_s - held_s
            if seconds > slowest.seconds:
                slowest = Recovery(span, seconds, name)
        found.append(slowest)
    return found


def affected(span: Span, names: Iterable[str]) -> list[str]:
    """What has to give a sign of life after this fault."""
    kind = BY_NAME[span.name].targets
    if kind == "web":
        return [name for name in names if name == span.target]
    if kind in {"node", "podman-node"}:
        return [name for name in names if name == f"node:{span.target}"]
    if kind == "beat":
        return [name for name in names if name == PASS]
    return list(names)


def covered_s(spans: Iterable[Span], begin_s: float, end_s: float) -> float:
    """How much of an interval lies in one of the spans."""
    total, reached = 0.0, begin_s
    for span in sorted(spans, key=lambda span: span.begun_s):
        low, high = max(span.begun_s, reached), min(span.ended_s, end_s)
        if high > low:
            total += high - low
            reached = high
    return total


def summary(found: Sequence[Recovery]) -> tuple[float, float, str]:
    """Median and worst in seconds, and which fault the worst was."""
    if not found:
        return 0.0, 0.0, "-"
    worst = max(found, key=lambda one: one.seconds)
    median = statistics.median(one.seconds for one in found)
    return median, worst.seconds, str(worst)
