"""Numbered steps at which a test kills this process, to prove that a restart recovers.

With `RPM_CRASH_AT=<name>` in its environment a process ends at that step as by kill -9, the first
time that it gets there. Without, a step costs one comparison. The steps of the helper on the nodes
are in apps/execution/node/crash_points.py.
"""

import os
import signal
from collections.abc import Iterator
from typing import Final

# Numbered by their place; docs/chaos.md says the same to people.
POINTS: Final[tuple[str, ...]] = (
    "launch.claimed",
    "launch.pulled",
    "launch.leased",
    "launch.half-sent",
    "launch.answered",
    "launch.noted",
    "stop.asked",
    "stop.sending",
    "stop.half-sent",
    "stop.answered",
    "preempt.planned",
    "finish.reported",
    "finish.committed",
    "finish.half-sent",
    "finish.acknowledged",
)
HALF_SENT: Final = {
    "launch.half-sent": b'"verb":"launch"',
    "stop.half-sent": b'"verb":"stop"',
    # The exchange that tells a node which results are stored.
    "finish.half-sent": b'"acknowledged":[{',
}


def wanted_point(text: str) -> str:
    """The requested step, empty for none.

    Raises:
        ValueError: there is no such step.
    """
    if text and text not in POINTS:
        raise ValueError(f"RPM_CRASH_AT: {text!r} is none of {', '.join(POINTS)}")
    return text


_wanted = wanted_point(os.environ.get("RPM_CRASH_AT", ""))


def crash_point(name: str) -> None:
    """Nothing, unless this process was started to end here."""
    if name == _wanted:
        os.kill(os.getpid(), signal.SIGKILL)


def request_chunks(request: bytes) -> Iterator[bytes]:
    """What is sent one after the other: all of it at once, unless this process ends half-way."""
    if _wanted in HALF_SENT and HALF_SENT[_wanted] in request:
        yield request[: len(request) // 2]
        os.kill(os.getpid(), signal.SIGKILL)
    yield request
