"""Removes what an ended task leaves outside its folder, until nothing is left."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from apps.execution.node import files, private_files, state_files
from apps.execution.node.detached_process import detach
from apps.execution.node.runtime_kinds import runtime_of
from apps.execution.node.runtimes import TaskRuntime
from apps.execution.node.state_files import MemberFolder

MARK = "cleaned"
# A runtime that fails is asked again; after the last time the next sync starts the cleanup again.
PAUSES_S = (0, 0.5, 2, 5, 10)


def clean_up(member: MemberFolder, runtime: TaskRuntime) -> bool:
    """Remove the container, its private files and its variables; False if something may be left."""
    for pause_s in PAUSES_S:
        time.sleep(pause_s)
        if runtime.clean() and private_files.remove(member, runtime.config):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(member.path("env"))
            member.mark(MARK)
            return True
    return False


def is_clean(member: MemberFolder) -> bool:
    """Whether nothing of the attempt is left outside its folder."""
    return member.has(MARK)


def ensure_clean(member: MemberFolder, config: dict[str, Any]) -> None:
    """Clean up after an ended attempt in a process of its own, unless one has done it or is at it.

    An attempt of an earlier boot that left no result is removed as a whole.
    """
    if is_clean(member) and member.has("exit.json"):
        return
    alive = files.take_lock(member.path("alive"), wait=False)
    if alive is None:
        return

    def work() -> None:
        state_files.note_supervisor(alive)
        if clean_up(member, runtime_of(member, config)) and not member.has("exit.json"):
            with files.locked(state_files.task_lock(member.home, member.identity.task_id)):
                state_files.remove(member)

    detach(member.home, work, keep=(alive,))
    os.close(alive)
