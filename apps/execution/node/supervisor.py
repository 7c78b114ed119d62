"""A process of its own for every task: starts it, waits for it, writes down how it ended.

It is detached from the connection that brought the launch, so that nothing that happens to the
control plane or to sshd reaches the task.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import subprocess
import time
from typing import Any, Callable, TypeVar

from apps.execution.node import (
    clocks,
    files,
    leases,
    mps,
    private_files,
    state_files,
    task_files,
)
from apps.execution.node.cleanup import clean_up
from apps.execution.node.crash_points import crash_point
from apps.execution.node.detached_process import detach
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.results import insist_on_exit, note_started
from apps.execution.node.runtime_kinds import KINDS, runtime_of
from apps.execution.node.runtimes import RuntimeUnavailable, TaskRuntime
from apps.execution.node.specs import Spec
from apps.execution.node.state_files import MemberFolder
from apps.execution.node.watchdog import enforce, ensure_watchdog

# A task that runs away with its log must not fill the node's disk.
LOG_LIMIT_BYTES = 256 * 1024 * 1024
LOG_CHECK_S = 1.0
# So often may a task be found with much more space than its log and its checkpoint file may have;
# what it writes into the log does not count.
MOST_EXCESSES = 3
EXCESS_WORDS = "its log and its checkpoint file took more space than they may, %d times"
STARTING_STEP_S = 0.005
# Images are fetched before. A client that hangs holds locks, for which other clients wait.
START_LIMIT_S = 600
KILL_AGAIN_S = 10.0
# A runtime that gives no answer is asked again.
AWAY_STEP_S = 0.2
AWAY_STEP_HIGHEST_S = 5.0
# With these podman and docker tell of failures of their own, and tasks of theirs.
CLIENT_CODES = (125, 126, 127)
WORDS_BYTES = 2000

T = TypeVar("T")


def launch(member: MemberFolder, spec: Spec, config: dict[str, Any]) -> int | None:
    """Start a supervisor for the attempt, unless it has one.

    Returns:
        What can be read once the task runs or has failed; the caller closes it.
    """
    alive = files.take_lock(member.path("alive"), wait=False)
    if alive is None:
        # An earlier launch made one that has not come to start the task yet. A second one would
        # wait for its end, and then run the task once more.
        return None
    reading, writing = os.pipe()

    def work() -> None:
        state_files.note_supervisor(alive)
        supervise(member, spec, config, changes=writing)

    detach(member.home, work, keep=(writing, alive))
    os.close(writing)
    # The lock lives on in the supervisor, which inherited the descriptor.
    os.close(alive)
    return reading


def adopt(member: MemberFolder, config: dict[str, Any]) -> bool:
    """Give an attempt whose supervisor died another one. False when it has one."""
    alive = files.take_lock(member.path("alive"), wait=False)
    if alive is None:
        return False

    def work() -> None:
        state_files.note_supervisor(alive)
        _watch(member, config)

    detach(member.home, work, keep=(alive,))
    os.close(alive)
    return True


def supervise(member: MemberFolder, spec: Spec, config: dict[str, Any], *, changes: int) -> None:
    """Start the task and stay until its end is written down."""
    if member.has("stop.json"):
        insist_on_exit(member, config, None, "stopped before it started")
        return
    task = _Task(member, KINDS[spec.runtime](member, config), config)
    ensure_watchdog(member, config, adopt)
    enforce(member, task.runtime)
    if leases.is_over(member):
        insist_on_exit(member, config, None, "")
        return
    log = os.open(member.path("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    # From here on the runtime may have been asked; a later supervisor must look, not start.
    member.mark("starting")
    crash_point("node.launch.starting")
    try:
        process = task.runtime.start(mps.prepare(member, spec, config), log)
    except (OSError, RequestRefusal, subprocess.SubprocessError) as error:
        _conclude(task, None, "%s" % error)
        return
    crash_point("node.launch.created")
    has_started = _await_start(task, process)
    crash_point("node.launch.started")
    if has_started:
        os.close(changes)
    # Otherwise the launch waits a little longer, and hears why.
    _finish(task, _await_end(task, process))


class _Task:
    """The task of a supervisor, with its log, lease and checkpoints."""

    def __init__(self, member: MemberFolder, runtime: TaskRuntime, config: dict[str, Any]) -> None:
        self.member = member
        self.runtime = runtime
        self.config = config
        self.checkpointed_at: float | None = None
        self.start_until_s = clocks.uptime_s() + START_LIMIT_S
        self.excesses = 0
        # Why the node itself ended it.
        self.reason = ""

    def look_after(self) -> float:
        """Mind its log, its lease and its checkpoints; seconds until that is due again."""
        self.limit_space()
        checkpointed_at = private_files.checkpointed_wall_s(self.member, self.config)
        if checkpointed_at != self.checkpointed_at:
            self.checkpointed_at = checkpointed_at
            state_files.notify(self.member.home)
        # Whatever the disk says, the lease is looked at.
        with contextlib.suppress(OSError):
            shorten_log(self.member, limit=LOG_LIMIT_BYTES)
        if not self.member.has("lease.json"):
            # At no moment that a task knows before.
            return LOG_CHECK_S * (500 + secrets.randbelow(1000)) / 1000
        with contextlib.suppress(OSError):
            ensure_watchdog(self.member, self.config, adopt)
        return enforce(self.member, self.runtime)

    def limit_space(self) -> None:
        """End a task that takes space again and again, as fast as the node frees it."""
        with contextlib.suppress(OSError):
            self.excesses += private_files.takes_too_much(self.member, self.config)
        with contextlib.suppress(OSError):
            self.excesses += log_takes_too_much(self.member, limit=LOG_LIMIT_BYTES)
        if self.excesses >= MOST_EXCESSES:
            self.reason = EXCESS_WORDS % MOST_EXCESSES
            self.runtime.kill()

    def limit_start(self) -> None:
        """Kill a client that has not started the task in time, again and again."""
        if clocks.uptime_s() > self.start_until_s:
            self.reason = "it had not started after %d s" % START_LIMIT_S
            self.start_until_s += KILL_AGAIN_S
            self.runtime.kill()

    def ask(self, question: Callable[[], T]) -> T:
        """What the runtime answers, however long it is away."""
        wait_s = AWAY_STEP_S
        while True:
            try:
                return question()
            except RuntimeUnavailable:
                time.sleep(min(wait_s, self.look_after()))
                wait_s = min(wait_s * 2, AWAY_STEP_HIGHEST_S)


def _await_start(task: _Task, process: subprocess.Popen[bytes]) -> bool:
    while process.poll() is None:
        pid = task.runtime.started_pid()
        if pid is not None:
            note_started(task.member, pid)
            return True
        if task.member.has("lease.json"):
            enforce(task.member, task.runtime)
        task.limit_start()
        time.sleep(STARTING_STEP_S)
    return False


def _await_end(task: _Task, process: subprocess.Popen[bytes]) -> int:
    """Wait for the end, and look after the task meanwhile."""
    while process.poll() is None:
        # `process.wait` with a limit asks every 50 ms; this hears of the end.
        _await_process(process.pid, task.look_after())
    return process.returncode


def _finish(task: _Task, code: int) -> None:
    """Conclude from how the process ended that was started for the task."""
    has_started = task.runtime.started_pid() is not None
    is_clients_own = code < 0 or code in CLIENT_CODES or (code > 0 and not has_started)
    if task.runtime.has_client and is_clients_own:
        # Killed, or failed itself: of the task that says nothing.
        words = task.reason or _last_words(task.member) or "the runtime ended with code %d" % code
        _follow(task, words)
        return
    if not task.member.has("started.json"):
        note_started(task.member, 0)
    _conclude(task, code if code >= 0 else 128 - code, task.reason)


def _follow(task: _Task, words: str) -> None:
    """Follow a task that no process here waits for.

    Args:
        words: said of its end if the runtime has no code of it.
    """
    while task.runtime.is_being_made():
        task.limit_start()
        time.sleep(min(AWAY_STEP_S, task.look_after()))
    pid = task.ask(task.runtime.living_pid)
    if pid is not None and task.ask(task.runtime.is_half_made):
        task.runtime.kill()
    elif pid is not None and not task.member.has("started.json"):
        note_started(task.member, pid)
    while pid is not None:
        _await_process(pid, task.look_after())
        pid = task.ask(task.runtime.living_pid)
    code = task.ask(task.runtime.exit_code)
    if code is not None and not task.member.has("started.json"):
        note_started(task.member, 0)
    _conclude(task, code, task.reason or ("" if code is not None else words))


def _conclude(task: _Task, code: int | None, error: str) -> None:
    """End leftover processes, store the result, clean up: in this order."""
    task.runtime.remove_leftovers()
    crash_point("node.finish.ended")
    insist_on_exit(task.member, task.config, code, error)
    crash_point("node.finish.written")
    clean_up(task.member, task.runtime)
    crash_point("node.finish.cleaned")


def _watch(member: MemberFolder, config: dict[str, Any]) -> None:
    """Follow a task that another supervisor started, until it ends."""
    _follow(
        _Task(member, runtime_of(member, config), config), "its supervisor died before it ended"
    )


def _await_process(pid: int, wait_s: float) -> None:
    """Wait a while for a process that is not a child."""
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, AttributeError):
        # Gone already, or a kernel or Python without pidfd: look again in a moment.
        time.sleep(min(0.2, wait_s))
        return
    try:
        select.select([descriptor], [], [], wait_s)
    finally:
        os.close(descriptor)


def shorten_log(member: MemberFolder, *, limit: int) -> None:
    """Throw the log away when it is beyond its bound; offsets go on counting."""
    path = member.path("log")
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return
    if task_files.is_beyond(status, limit):
        dropped = int((member.read("dropped.json") or {}).get("bytes", 0))
        member.write("dropped.json", {"bytes": dropped + status.st_size})
        # The writers have the file open for appending, so they go on at its new end. Also frees
        # what was taken behind the end.
        os.truncate(path, 0)


def log_takes_too_much(member: MemberFolder, *, limit: int) -> bool:
    """Whether the log takes much more space than its length and its bound explain.

    A task that only writes fast is no offender, however long its log is at this moment.

    Raises:
        OSError: there is none.
    """
    status = os.stat(member.path("log"))
    return task_files.takes_too_much(status, max(status.st_size, limit))


def _last_words(member: MemberFolder) -> str:
    with open(member.path("log"), "rb") as source:
        source.seek(0, os.SEEK_END)
        source.seek(max(0, source.tell() - WORDS_BYTES))
        return source.read().decode(errors="replace").strip()
