"""The verb `sync`: heartbeat, report, results, logs and news in one exchange."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import select
from typing import Any, Iterator, NamedTuple

from apps.execution.node import checks, clocks, files, homes, supervisor
from apps.execution.node.devices import device_processes
from apps.execution.node.homes import Attempt
from apps.execution.node.members import acknowledge
from apps.execution.node.specs import identity_of
from apps.execution.node.stopper import ensure_stopper

WAIT_HIGHEST_S = 60
LOG_BYTES = 64 * 1024
LOG_STEP_S = 0.025
# A task that prints line by line must not cost an exchange per line.
GATHER_S = 0.03


class Watched(NamedTuple):
    """A log somebody wants, from `offset` on, counted over all the task ever wrote."""

    attempt: Attempt
    offset: int


def sync(home: str, config: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Report everything of ours, at once if it differs from `seen`, else when something happens.

    Something is a start, an end, or new bytes in a watched log; after `wait_s` the answer comes
    anyway. `full` adds what takes long to ask: processes on the devices.
    """
    seen = request.get("seen", "")
    wait_s = checks.number(request, "wait_s", highest=WAIT_HIGHEST_S)
    watched = [_watched_of(home, item) for item in checks.records(request, "logs", most=1000)]
    for item in checks.records(request, "acknowledged", most=10_000):
        acknowledge(home, identity_of(item))
    until = clocks.uptime_s() + wait_s
    with _waiter(home) as news:
        while True:
            members = _members(home, config)
            version = _version_of(members)
            logs = [log for log in map(_read_log, watched) if log is not None]
            left_s = until - clocks.uptime_s()
            if version != seen or logs or left_s <= 0:
                break
            _await_news(news, watched, left_s)
    answer = {"version": version, "members": members, "logs": logs}
    if request.get("full") is True:
        answer["device_processes"] = device_processes(_started_pids(home))
    return answer


def _members(home: str, config: dict[str, Any]) -> list[dict[str, Any]]:
    reports = []
    for attempt in homes.attempts(home):
        ended = attempt.read("exit.json")
        if ended is None and not homes.is_of_this_boot(attempt):
            _clear_away(attempt, config)
            continue
        if ended is None and attempt.has("starting"):
            _ensure_company(attempt, config)
        reports.append(_report(attempt, ended))
    return reports


def _ensure_company(attempt: Attempt, config: dict[str, Any]) -> None:
    """Give a living member back the processes beside it that somebody killed."""
    if not attempt.is_supervised():
        supervisor.adopt(attempt, config)
    if attempt.has("stop.json"):
        ensure_stopper(attempt, config)


def _report(attempt: Attempt, ended: dict[str, Any] | None) -> dict[str, Any]:
    started = attempt.read("started.json")
    state = "created" if started is None else "running"
    report: dict[str, Any] = {
        "task_id": attempt.identity.task_id,
        "generation": attempt.identity.generation,
        "rank": attempt.identity.rank,
        "state": "exited" if ended is not None else state,
        "is_stop_asked": attempt.has("stop.json"),
    }
    if started is not None:
        report["started_wall_s"] = started["wall_s"]
        report["started_uptime_s"] = started["uptime_s"]
    if ended is not None:
        report["exit_code"] = ended["exit_code"]
        report["error"] = ended["error"]
        report["ended_wall_s"] = ended["wall_s"]
        report["ended_uptime_s"] = ended["uptime_s"]
        report["log_bytes"] = _log_end(attempt)
    return report


def _clear_away(attempt: Attempt, config: dict[str, Any]) -> None:
    """Forget a member of an earlier boot that left no result, and what the runtime keeps of it."""
    with files.locked(homes.task_lock(attempt.home, attempt.identity.task_id)):
        if attempt.exists():
            supervisor.runtime_of(attempt, config).clean()
            homes.remove(attempt)


def _version_of(members: list[dict[str, Any]]) -> str:
    """A short name of this state of affairs; equal reports have equal names."""
    return hashlib.sha256(json.dumps(members, sort_keys=True).encode()).hexdigest()[:16]


def _watched_of(home: str, item: dict[str, Any]) -> Watched:
    offset = checks.whole(item, "offset", lowest=0, highest=2**53)
    return Watched(Attempt(home, identity_of(item)), offset)


def _read_log(watched: Watched) -> dict[str, Any] | None:
    """New bytes of one log, None when there are none; `offset` jumps over what was thrown away."""
    attempt = watched.attempt
    dropped = _dropped(attempt)
    offset = max(watched.offset, dropped)
    try:
        with open(attempt.path("log"), "rb") as source:
            source.seek(offset - dropped)
            content = source.read(LOG_BYTES)
    except FileNotFoundError:
        return None
    if not content:
        return None
    return {
        **attempt.identity._asdict(),
        "offset": offset,
        "content": base64.b64encode(content).decode(),
    }


def _log_end(attempt: Attempt) -> int:
    with contextlib.suppress(FileNotFoundError):
        return _dropped(attempt) + os.stat(attempt.path("log")).st_size
    return 0


def _dropped(attempt: Attempt) -> int:
    return int((attempt.read("dropped.json") or {}).get("bytes", 0))


@contextlib.contextmanager
def _waiter(home: str) -> Iterator[int]:
    """A pipe that `homes.ring` writes to; there before the state is read, so no news is missed."""
    folder = os.path.join(home, "waiters")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, str(os.getpid()))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    os.mkfifo(path, 0o600)
    # Read and write: with no writer in between, a pipe opened for reading would report its end.
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _await_news(news: int, watched: list[Watched], left_s: float) -> None:
    """Sleep until rung, until a watched log grows, or until the time is over."""
    until = clocks.uptime_s() + left_s
    while True:
        left_s = until - clocks.uptime_s()
        if left_s <= 0:
            return
        rung, _, _ = select.select([news], [], [], min(left_s, LOG_STEP_S) if watched else left_s)
        if rung:
            os.read(news, 4096)
            return
        if any(_log_end(one.attempt) > one.offset for one in watched):
            select.select([news], [], [], min(max(left_s, 0), GATHER_S))
            return


def _started_pids(home: str) -> dict[int, dict[str, Any]]:
    """The first process of every member that runs, with the member's identity."""
    pids = {}
    for attempt in homes.attempts(home):
        started = attempt.read("started.json")
        if started is not None and not attempt.has("exit.json"):
            pids[int(started["pid"])] = attempt.identity._asdict()
    return pids
