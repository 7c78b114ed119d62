"""Two teams on simulated GPUs, for trying out: thirty days of history, and work that goes on."""

from rpm.demonstration.live_tasks import tasks_replenish
from rpm.demonstration.presence import (
    DemonstrationLogin,
    is_loaded,
    is_present,
    pause,
    resume,
    stored_logins,
)
from rpm.demonstration.removal import remove
from rpm.demonstration.setup import load

__all__ = [
    "DemonstrationLogin",
    "is_loaded",
    "is_present",
    "load",
    "pause",
    "remove",
    "resume",
    "stored_logins",
    "tasks_replenish",
]
