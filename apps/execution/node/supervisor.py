"""A process of its own beside every task: starts it, waits for it, writes down how it ended.

It is detached from the connection that brought the launch, so that nothing that happens to the
control plane or to sshd reaches the task.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
import traceback
from typing import Any, Callable

from apps.execution.node import clocks, files, processes
from apps.execution.node.errors import Refusal
from apps.execution.node.homes import Attempt
from apps.execution.node.runtimes import KINDS, Runtime
from apps.execution.node.specs import Spec

# A task that runs away with its log must not fill the node's disk.
LOG_LIMIT_BYTES = 256 * 1024 * 1024
LOG_CHECK_S = 1.0
STARTING_STEP_S = 0.005
WORDS_BYTES = 2000


def detach(home: str, work: Callable[[], None], *, keep: tuple[int, ...]) -> None:
    """Run `work` in a process that belongs to nobody: own session, no terminal, no pipes.

    Args:
        keep: descriptors that stay open there; every other lock and pipe is let go.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        _leave_the_channel(keep)
        work()
    except BaseException:  # noqa: BLE001  # the last frame of this process: whatever it was, note it
        _note_crash(home)
    finally:
        os._exit(0)


def launch(attempt: Attempt, spec: Spec, config: dict[str, Any], *, wait_s: float) -> None:
    """Start a supervisor for the attempt and wait until the task runs, has failed, or `wait_s`."""
    alive = files.take_lock(attempt.path("alive"), wait=False)
    if alive is None:
        # An earlier launch made one that has not come to start the task yet. A second one would
        # wait for its end, and then run the task once more.
        return
    reading, writing = os.pipe()

    def work() -> None:
        supervise(attempt, spec, config, news=writing)

    detach(attempt.home, work, keep=(writing, alive))
    os.close(writing)
    # The lock lives on in the supervisor, which inherited the descriptor.
    os.close(alive)
    with open(reading, "rb", buffering=0) as source:
        select.select([source], [], [], wait_s)


def adopt(attempt: Attempt, config: dict[str, Any]) -> bool:
    """Give an attempt whose supervisor died a new one. False when it has one."""
    alive = files.take_lock(attempt.path("alive"), wait=False)
    if alive is None:
        return False
    detach(attempt.home, lambda: _watch(attempt, config), keep=(alive,))
    os.close(alive)
    return True


def runtime_of(attempt: Attempt, config: dict[str, Any]) -> Runtime:
    """The runtime that the attempt was launched with."""
    kind = (attempt.read("spec.json") or {}).get("runtime", "process")
    return KINDS[kind](attempt, config)


def supervise(attempt: Attempt, spec: Spec, config: dict[str, Any], *, news: int) -> None:
    """Start the task and stay until its end is written down."""
    if attempt.has("stop.json"):
        note_exit(attempt, None, "stopped before it started")
        return
    runtime = KINDS[spec.runtime](attempt, config)
    log = os.open(attempt.path("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    # From here on the runtime may have been asked; whoever comes later must look, not start.
    files.write_bytes(attempt.path("starting"), b"", durable=False)
    try:
        process = runtime.start(spec, log)
    except (OSError, Refusal, subprocess.SubprocessError) as error:
        note_exit(attempt, None, "%s" % error)
        runtime.clean()
        return
    has_started = _await_start(attempt, runtime, process)
    if has_started:
        os.close(news)
    # Otherwise the launch waits a little longer, and hears why.
    code = _await_end(attempt, process)
    has_started = has_started or runtime.started_pid() is not None
    _finish(attempt, runtime, code, has_started=has_started)


def note_started(attempt: Attempt, pid: int) -> None:
    """Write down that the task runs."""
    attempt.write(
        "started.json",
        {
            "pid": pid,
            "pid_start": processes.start_ticks(pid),
            "wall_s": clocks.wall_s(),
            "uptime_s": clocks.uptime_s(),
        },
    )


def note_exit(attempt: Attempt, code: int | None, error: str) -> None:
    """Write down how it ended, before anything of it is removed.

    Args:
        code: None when the task never started or its code is lost.
        error: the node's own words when the task could not be started or followed.
    """
    attempt.write(
        "exit.json",
        {
            "exit_code": code,
            "error": error,
            "wall_s": clocks.wall_s(),
            "uptime_s": clocks.uptime_s(),
        },
        durable=True,
    )


def _await_start(attempt: Attempt, runtime: Runtime, process: subprocess.Popen[bytes]) -> bool:
    while process.poll() is None:
        pid = runtime.started_pid()
        if pid is not None:
            note_started(attempt, pid)
            return True
        time.sleep(STARTING_STEP_S)
    return False


def _await_end(attempt: Attempt, process: subprocess.Popen[bytes]) -> int:
    """Wait for the end, and keep the log within its bound meanwhile."""
    while True:
        try:
            return process.wait(LOG_CHECK_S)
        except subprocess.TimeoutExpired:
            shorten_log(attempt, limit=LOG_LIMIT_BYTES)


def _finish(attempt: Attempt, runtime: Runtime, code: int, *, has_started: bool) -> None:
    pid = runtime.living_pid() if code < 0 and runtime.has_client else None
    if pid is not None:
        # Only the runtime's client was killed; the task goes on.
        _follow(attempt, runtime, pid)
        return
    runtime.sweep()
    if not has_started and code != 0:
        words = _last_words(attempt) or "the runtime ended with code %d" % code
        note_exit(attempt, None, words)
    else:
        if not attempt.has("started.json"):
            note_started(attempt, 0)
        note_exit(attempt, code if code >= 0 else 128 - code, "")
    runtime.clean()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(attempt.path("env"))


def _watch(attempt: Attempt, config: dict[str, Any]) -> None:
    """Follow a task that somebody else started, until it ends."""
    runtime = runtime_of(attempt, config)
    pid = runtime.living_pid()
    if pid is not None and not attempt.has("started.json"):
        note_started(attempt, pid)
    _follow(attempt, runtime, pid)


def _follow(attempt: Attempt, runtime: Runtime, pid: int | None) -> None:
    while pid is not None:
        _await_process(pid)
        shorten_log(attempt, limit=LOG_LIMIT_BYTES)
        pid = runtime.living_pid()
    code = runtime.exit_code()
    runtime.sweep()
    if not attempt.has("exit.json"):
        note_exit(attempt, code, "" if code is not None else "its supervisor died before it ended")
    runtime.clean()


def _await_process(pid: int) -> None:
    """Wait a while for a process that is not a child."""
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, AttributeError):
        # Gone already, or a kernel or Python without pidfd: look again in a moment.
        time.sleep(0.2)
        return
    try:
        select.select([descriptor], [], [], LOG_CHECK_S)
    finally:
        os.close(descriptor)


def shorten_log(attempt: Attempt, *, limit: int) -> None:
    """Throw the log away when it is beyond its bound; offsets go on counting."""
    path = attempt.path("log")
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        return
    if size > limit:
        dropped = int((attempt.read("dropped.json") or {}).get("bytes", 0))
        attempt.write("dropped.json", {"bytes": dropped + size})
        # The writers have the file open for appending, so they go on at its new end.
        os.truncate(path, 0)


def _last_words(attempt: Attempt) -> str:
    with open(attempt.path("log"), "rb") as source:
        source.seek(0, os.SEEK_END)
        source.seek(max(0, source.tell() - WORDS_BYTES))
        return source.read().decode(errors="replace").strip()


def _leave_the_channel(keep: tuple[int, ...]) -> None:
    """Let go of the connection: sshd waits for everybody who holds its pipes."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            # The descriptor of the listing itself is closed by now.
            with contextlib.suppress(OSError):
                os.close(int(name))
    os.chdir("/")
    os.umask(0o077)


def _note_crash(home: str) -> None:
    """Keep the trace where `probe` finds it; there is nobody else to tell."""
    path = os.path.join(home, "crashes.log")
    with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as target:
        traceback.print_exc(file=target)
