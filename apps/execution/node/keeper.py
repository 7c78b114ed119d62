"""The parent of a plain process: it keeps the exit code, whichever process of ours is killed.

A container's runtime has the code of a task that no process here waits for; of a plain process
only its parent hears it. So that is a process of its own, which does nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from typing import Callable

from apps.execution.node import files
from apps.execution.node.detached_process import detach
from apps.execution.node.errors import RequestRefusal
from apps.execution.node.state_files import MemberFolder

LOCK = "keeper"
CODE = "code.json"
# The disk of a node can be full when a task ends.
WRITE_TRIES = 600
WRITE_STEP_S = 1.0


class KeptProcess:
    """Waits for a task through its keeper, as one waits for a `subprocess.Popen`.

    Args:
        pid: the keeper's, which ends right after the task.
        task_pid: the task's own.
    """

    def __init__(self, member: MemberFolder, pid: int, task_pid: int) -> None:
        self.pid = pid
        self.task_pid = task_pid
        self.returncode: int | None = None
        self._member = member

    def poll(self) -> int | None:
        """The task's code; negative where the keeper was killed before it wrote one down."""
        if self.returncode is None and not is_there(self._member):
            code = code_of(self._member)
            self.returncode = -1 if code is None else code
        return self.returncode


def is_there(member: MemberFolder) -> bool:
    """Whether the code of the task may still come."""
    return files.is_locked(member.path(LOCK))


def code_of(member: MemberFolder) -> int | None:
    """The exit code that was kept, 128 and the number of the signal where one ended it."""
    code = (member.read(CODE) or {}).get("code")
    return code if type(code) is int and 0 <= code <= 255 else None


def start_kept(
    member: MemberFolder, begin: Callable[[], subprocess.Popen[bytes]], *, keep: tuple[int, ...]
) -> KeptProcess:
    """Have a keeper start the task.

    Args:
        begin: starts it; called in the keeper.
        keep: descriptors that `begin` uses.

    Raises:
        OSError: nothing was started.
    """
    lock = files.take_lock(member.path(LOCK), wait=False)
    if lock is None:
        raise OSError("an earlier start of it is not over")
    reading, writing = os.pipe()
    detach(member.home, lambda: _keep(member, begin, writing), keep=(lock, writing, *keep))
    os.close(writing)
    os.close(lock)
    with os.fdopen(reading, "rb") as source:
        started = json.loads(source.read() or b"{}")
    if "task" not in started:
        raise OSError(started.get("error", "it was killed while it started"))
    return KeptProcess(member, started["keeper"], started["task"])


def _keep(member: MemberFolder, begin: Callable[[], subprocess.Popen[bytes]], writing: int) -> None:
    try:
        process = begin()
    except (OSError, RequestRefusal, subprocess.SubprocessError) as error:
        _tell(writing, {"error": "%s" % error})
        return
    _tell(writing, {"keeper": os.getpid(), "task": process.pid})
    # Not reaped before its code is written down: until then no other process gets its number.
    ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    if ended is not None:
        is_exit = ended.si_code == os.CLD_EXITED
        _write(member, ended.si_status if is_exit else 128 + ended.si_status)
    process.wait()


def _tell(writing: int, words: dict[str, object]) -> None:
    # The supervisor may have been killed meanwhile; the task goes on.
    with contextlib.suppress(OSError):
        os.write(writing, json.dumps(words).encode())
    os.close(writing)


def _write(member: MemberFolder, code: int) -> None:
    for _ in range(WRITE_TRIES):
        try:
            member.write(CODE, {"code": code})
        except OSError:
            time.sleep(WRITE_STEP_S)
        else:
            return
