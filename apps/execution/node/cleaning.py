"""Removes what an ended task leaves outside its folder, until nothing is left."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from apps.execution.node import files, homes, privates
from apps.execution.node.detaching import detach
from apps.execution.node.homes import Attempt
from apps.execution.node.kinds import runtime_of
from apps.execution.node.runtimes import Runtime

MARK = "cleaned"
# A runtime that fails is asked again; after the last time somebody else begins anew with a sync.
PAUSES_S = (0, 0.5, 2, 5, 10)


def clean_up(attempt: Attempt, runtime: Runtime) -> bool:
    """Remove the container, its private files and its variables; False if something may be left."""
    for pause_s in PAUSES_S:
        time.sleep(pause_s)
        if runtime.clean() and privates.remove(attempt, runtime.config):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(attempt.path("env"))
            attempt.mark(MARK)
            return True
    return False


def is_clean(attempt: Attempt) -> bool:
    """Whether nothing of the attempt is left outside its folder."""
    return attempt.has(MARK)


def ensure_clean(attempt: Attempt, config: dict[str, Any]) -> None:
    """Have somebody clean up after an ended attempt, unless it is done or somebody is at it.

    An attempt of an earlier boot that left no result goes away as a whole.
    """
    if is_clean(attempt) and attempt.has("exit.json"):
        return
    alive = files.take_lock(attempt.path("alive"), wait=False)
    if alive is None:
        return

    def work() -> None:
        homes.note_supervisor(alive)
        if clean_up(attempt, runtime_of(attempt, config)) and not attempt.has("exit.json"):
            with files.locked(homes.task_lock(attempt.home, attempt.identity.task_id)):
                homes.remove(attempt)

    detach(attempt.home, work, keep=(alive,))
    os.close(alive)
