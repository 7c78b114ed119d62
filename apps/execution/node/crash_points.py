"""Numbered steps at which a test kills the helper's own processes on a node.

Only tests write `<home>/crash-at`, with the name of one step. The first process that gets there
removes the file and ends as by kill -9; the file is read once, when a process begins. The steps
of the control plane are in apps/core/crash_points.py.
"""

from __future__ import annotations

import os
import signal

# Numbered by their place; docs/chaos.md has the same table.
POINTS = (
    "node.launch.fenced",
    "node.launch.noted",
    "node.launch.starting",
    "node.launch.created",
    "node.launch.started",
    "node.launch.answering",
    "node.stop.noted",
    "node.stop.begun",
    "node.stop.terminated",
    "node.stop.killed",
    "node.finish.ended",
    "node.finish.written",
    "node.finish.cleaned",
    "node.finish.acknowledged",
    "node.finish.dropping",
)

_wanted = [""]
_path = [""]


def arm(home: str) -> None:
    """Remember the step at which this process, or one that it leaves behind, is to end."""
    _path[0] = os.path.join(home, "crash-at")
    try:
        with open(_path[0], encoding="ascii") as source:
            _wanted[0] = source.read().strip()
    except OSError:
        _wanted[0] = ""


def crash_point(name: str) -> None:
    """End the process if a test asked for that here and no process has ended here yet."""
    if name != _wanted[0]:
        return
    try:
        os.unlink(_path[0])
    except OSError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
