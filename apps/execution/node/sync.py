"""The verb `sync`: heartbeat, report, results, logs and news in one exchange."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import select
from typing import Any, Iterator, NamedTuple

from apps.execution.node import (
    clocks,
    leases,
    mps,
    private_files,
    registry_login,
    request_fields,
    serials,
    state_files,
    supervisor,
)
from apps.execution.node.cleanup import ensure_clean
from apps.execution.node.devices import device_processes
from apps.execution.node.members import acknowledge
from apps.execution.node.specs import MemberIdentity, identity_of
from apps.execution.node.state_files import MemberFolder
from apps.execution.node.stopper import ensure_stopper
from apps.execution.node.unlisted_members import unlisted_members
from apps.execution.node.watchdog import ensure_watchdog

WAIT_HIGHEST_S = 60
LOG_BYTES = 64 * 1024
OFFSET_HIGHEST = 2**53
# Of all logs in one answer.
ANSWER_LOG_BYTES = 8 * 1024 * 1024
LOG_STEP_S = 0.025
FALLBACK_STEP_S = 0.5
# A task that prints line by line must not cost an exchange per line.
GATHER_S = 0.03
# A start and the first line that follows it make one exchange.
FIRST_LINE_S = 0.15
# A container that is being removed is not worth an exchange to ask whether it is.
REMOVAL_STEP_S = 0.05
# The state of a member of which the node cannot say more.
UNKNOWN = "unknown"
WORDS = 500


class WatchedLog(NamedTuple):
    """A requested log, from `offset` on, counted over all the task ever wrote."""

    member: MemberFolder
    offset: int


class _Deadlines(NamedTuple):
    """When the answer has to leave, and from when on logs alone make one: in uptime."""

    until: float
    logs_from: float


def sync(home: str, config: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Report all members, at once if they differ from `seen`, else when something happens.

    Something is a start, an end, or new bytes in a watched log; after `wait_s` the answer comes
    anyway. A start waits a moment for the first line, and bytes of logs alone for `logs_after_s`.
    `full` adds what takes long to ask: processes on the devices.
    """
    seen = request.get("seen", "")
    wait_s = request_fields.number(request, "wait_s", highest=WAIT_HIGHEST_S)
    refused = _whole_or_0(request, "serial_refused")
    # First of all: a member must not end because of what else this exchange does.
    _renew_leases(home, request)
    serial = serials.record(home, _serial_of(request), refused=refused)
    watched = [
        _watched_of(home, item) for item in request_fields.records(request, "logs", most=1000)
    ]
    acknowledged = [
        identity_of(item) for item in request_fields.records(request, "acknowledged", most=10_000)
    ]
    mps.update_daemons(home, config)
    registry_login.remove_leftovers(home, config)
    after = {"logs_after_s": 0, **request}
    logs_after_s = request_fields.number(after, "logs_after_s", highest=WAIT_HIGHEST_S)
    now_s = clocks.uptime_s()
    deadlines = _Deadlines(until=now_s + wait_s, logs_from=now_s + logs_after_s)
    version, members, logs = _await_news(
        home,
        config,
        seen=seen,
        watched=watched,
        acknowledged=acknowledged,
        deadlines=deadlines,
    )
    answer = {
        "version": version,
        "members": members,
        "logs": logs,
        "serial": serial.number,
        "serial_signature": serial.signature,
    }
    if request.get("full") is True:
        answer["device_processes"] = device_processes(
            _started_pids(home), is_helpers=lambda pid: mps.is_server(pid, home)
        )
    return answer


def _await_news(
    home: str,
    config: dict[str, Any],
    *,
    seen: str,
    watched: list[WatchedLog],
    acknowledged: list[MemberIdentity],
    deadlines: _Deadlines,
) -> tuple[str, list[dict[str, Any]], list[dict[str, Any]]]:
    """The version of all members, the members, and new bytes of logs, once there is any news."""
    first_lines = _FirstLines(home, seen, watched)
    unlisted = [
        _unknown(one, "it runs, and the helper's files of it are gone")
        for one in unlisted_members(home, config)
    ]
    with waiter(home) as changes:
        while True:
            acknowledged = [one for one in acknowledged if not acknowledge(home, one)]
            members = _members(home, config) + unlisted
            version = _version_of(members)
            left_s = min(deadlines.until - clocks.uptime_s(), first_lines.left_s(members, version))
            held_s = deadlines.logs_from - clocks.uptime_s()
            logs = _read_logs(watched) if held_s <= 0 or left_s <= 0 else []
            if logs or left_s <= 0:
                return version, members, logs
            step_s = min(left_s, REMOVAL_STEP_S) if acknowledged else left_s
            if held_s > 0:
                _await_change(changes, [], min(step_s, held_s))
            else:
                _await_change(changes, watched, step_s)


def _renew_leases(home: str, request: dict[str, Any]) -> None:
    for item in request_fields.records(request, "leases", most=10_000):
        until_s = request_fields.number(item, "until_s", highest=1e10)
        leases.renew(MemberFolder(home, identity_of(item)), until_s)


def _serial_of(request: dict[str, Any]) -> serials.Serial:
    signature = "serial_signature"
    signed = request_fields.text({signature: "", **request}, signature, request_fields.SIGNATURE)
    return serials.Serial(_whole_or_0(request, "serial"), signed)


def _whole_or_0(request: dict[str, Any], field: str) -> int:
    """Missing in what a control plane of an earlier release asks."""
    return request_fields.whole({field: 0, **request}, field, lowest=0, highest=2**63)


def _members(home: str, config: dict[str, Any]) -> list[dict[str, Any]]:
    reports = []
    for member in state_files.members(home):
        try:
            report = _look_after(member, config)
        except Exception as error:  # noqa: BLE001  # one damaged member hides no other
            report = _unknown(member.identity, "%s: %s" % (type(error).__name__, error))
        if report is not None:
            reports.append(report)
    return reports


def _unknown(member: MemberIdentity, words: str) -> dict[str, Any]:
    """The report of a member that is neither given up nor started again for want of a better."""
    report = {**member._asdict(), "state": UNKNOWN, "is_stop_asked": False}
    return {**report, "error": words[:WORDS]}


def _look_after(member: MemberFolder, config: dict[str, Any]) -> dict[str, Any] | None:
    """See that the member is followed or cleaned up; its report, None of an earlier boot."""
    ended = state_files.result_of(member)
    if ended is None and not state_files.is_of_this_boot(member):
        _clear_away(member, config)
        return None
    if ended is not None:
        ensure_clean(member, config)
    elif member.has("starting"):
        _ensure_helpers(member, config)
    return _report(member, ended, config)


def _ensure_helpers(member: MemberFolder, config: dict[str, Any]) -> None:
    """Start a living member's supervisor and watchdog again where they were killed."""
    if not member.is_supervised():
        supervisor.adopt(member, config)
    ensure_watchdog(member, config, supervisor.adopt)
    if member.has("stop.json"):
        ensure_stopper(member, config)


def _report(
    member: MemberFolder, ended: dict[str, Any] | None, config: dict[str, Any]
) -> dict[str, Any]:
    started = member.read("started.json")
    # Damaged or not, the file says that it has begun.
    state = "running" if member.has("started.json") else "created"
    report: dict[str, Any] = {
        "task_id": member.identity.task_id,
        "generation": member.identity.generation,
        "rank": member.identity.rank,
        "state": "exited" if ended is not None else state,
        "is_stop_asked": member.has("stop.json"),
    }
    if started is not None:
        report["started_wall_s"] = started.get("wall_s")
        report["started_uptime_s"] = started.get("uptime_s")
    if state == "running" and ended is None:
        report["checkpointed_wall_s"] = private_files.checkpointed_wall_s(member, config)
    if ended is not None:
        report["checkpointed_wall_s"] = ended.get("checkpointed_wall_s")
        report["exit_code"] = ended["exit_code"]
        report["error"] = ended["error"]
        report["ended_wall_s"] = ended.get("wall_s")
        report["ended_uptime_s"] = ended["uptime_s"]
        report["log_bytes"] = _log_end(member)
        report["is_lease_over"] = ended.get("is_lease_over", False)
    return report


def _clear_away(member: MemberFolder, config: dict[str, Any]) -> None:
    """Forget a member of an earlier boot that left no result, and what the runtime keeps of it."""
    with state_files.decided(member.home, member.identity.task_id) as is_free:
        if is_free and member.exists():
            state_files.raise_fence(member.home, member.identity, ended=True)
            ensure_clean(member, config)


class _FirstLines:
    """Holds the news of a start back for its first line; any other news goes out at once.

    Args:
        watched: grows by what has started while this waited, which no request could name.
    """

    def __init__(self, home: str, seen: str, watched: list[WatchedLog]) -> None:
        self._home = home
        self._seen_version = seen
        self._watched = watched
        self._known_members: set[MemberIdentity] | None = None
        self._until_s: float | None = None

    def left_s(self, members: list[dict[str, Any]], version: str) -> float:
        """How long the answer may wait from now on."""
        begun = {identity_of(one): one for one in members if one["state"] != "created"}
        if version == self._seen_version:
            self._known_members = set(begun)
            return WAIT_HIGHEST_S
        if self._known_members is None:
            return 0
        started = [one for one in begun if one not in self._known_members]
        others = [one for identity, one in begun.items() if identity in self._known_members]
        has_ended = any(begun[one]["state"] == "exited" for one in started)
        if has_ended or _version_of(others) != self._seen_version:
            return 0
        if self._until_s is None:
            self._until_s = clocks.uptime_s() + FIRST_LINE_S
        watched_members = {one.member.identity for one in self._watched}
        self._watched += [
            WatchedLog(MemberFolder(self._home, one), 0)
            for one in started
            if one not in watched_members
        ]
        return self._until_s - clocks.uptime_s()


def _version_of(members: list[dict[str, Any]]) -> str:
    """A short name of this state: equal names say that there is no news.

    That a member is being started is none, nor that the node has heard of its stop: the request
    for either was answered.
    """
    changes = [
        {**one, "is_stop_asked": one["state"] == "exited" and one["is_stop_asked"]}
        for one in members
        if one["state"] != "created"
    ]
    return hashlib.sha256(json.dumps(changes, sort_keys=True).encode()).hexdigest()[:16]


def _watched_of(home: str, item: dict[str, Any]) -> WatchedLog:
    offset = request_fields.whole(item, "offset", lowest=0, highest=OFFSET_HIGHEST)
    return WatchedLog(MemberFolder(home, identity_of(item)), offset)


def _read_logs(watched: list[WatchedLog]) -> list[dict[str, Any]]:
    """New bytes of logs, as much as one answer holds; the rest comes with the next."""
    found = []
    for one in watched:
        log = _read_log(one)
        if log is not None:
            found.append(log)
        if len(found) * LOG_BYTES >= ANSWER_LOG_BYTES:
            break
    return found


def _read_log(watched: WatchedLog) -> dict[str, Any] | None:
    """New bytes of one log, None when there are none; `offset` jumps over what was thrown away.

    Without a byte behind that, too: otherwise the end of the log would never be reached.
    """
    member = watched.member
    dropped = _dropped(member)
    offset = max(watched.offset, dropped)
    try:
        with open(member.path("log"), "rb") as source:
            source.seek(offset - dropped)
            content = source.read(LOG_BYTES)
    except FileNotFoundError:
        return None
    if not content and offset == watched.offset:
        return None
    return {
        **member.identity._asdict(),
        "offset": offset,
        "content": base64.b64encode(content).decode(),
    }


def _log_end(member: MemberFolder) -> int:
    with contextlib.suppress(FileNotFoundError):
        size = os.stat(member.path("log")).st_size
        return min(_dropped(member) + size, OFFSET_HIGHEST)
    return 0


def _dropped(member: MemberFolder) -> int:
    """A task can make its log as long as it likes without writing: no number gets too large."""
    return min(int((member.read("dropped.json") or {}).get("bytes", 0)), OFFSET_HIGHEST)


@contextlib.contextmanager
def waiter(home: str) -> Iterator[int | None]:
    """A pipe that `notify` writes to; there before the state is read, so no news is missed."""
    path = state_files.waiter_path(home, str(os.getpid()))
    # Made and opened under a name that `notify` skips: it removes pipes that no process reads.
    made = path + state_files.UNFINISHED
    with contextlib.suppress(FileNotFoundError):
        os.unlink(made)
    try:
        os.mkfifo(made, 0o600)
    except OSError:
        # No space for a name: poll for news instead.
        yield None
        return
    # Read and write: with no writer in between, a pipe opened for reading would report its end.
    descriptor = os.open(made, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    os.rename(made, path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _await_change(changes: int | None, watched: list[WatchedLog], left_s: float) -> None:
    """Sleep until notified, until a watched log grows, or until the time is over."""
    if changes is None:
        select.select([], [], [], min(left_s, FALLBACK_STEP_S))
        return
    until = clocks.uptime_s() + left_s
    while True:
        left_s = until - clocks.uptime_s()
        if left_s <= 0:
            return
        notified, _, _ = select.select(
            [changes], [], [], min(left_s, LOG_STEP_S) if watched else left_s
        )
        if notified:
            os.read(changes, 4096)
            return
        if any(_log_end(one.member) > one.offset for one in watched):
            select.select([changes], [], [], min(max(left_s, 0), GATHER_S))
            return


def _started_pids(home: str) -> dict[int, dict[str, Any]]:
    """The first process of every member that runs, with the member's identity."""
    pids = {}
    for member in state_files.members(home):
        pid, _ = state_files.first_process(member)
        if pid and not member.has("exit.json"):
            pids[pid] = member.identity._asdict()
    return pids
