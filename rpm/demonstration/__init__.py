"""Two teams on simulated GPUs, for trying out: thirty days of history, and work that goes on."""

from rpm.demonstration.live_tasks import tasks_replenish
from rpm.demonstration.presence import (
    DemonstrationLogin,
    is_active,
    is_loaded,
    is_present,
    pause,
    resume,
    stored_logins,
)
from rpm.demonstration.removal import remove
from rpm.demonstration.samples import samples_record
from rpm.demonstration.setup import load

__all__ = [
    "DemonstrationLogin",
    "is_active",
    "is_loaded",
    "is_present",
    "load",
    "pause",
    "remove",
    "resume",
    "samples_record",
    "stored_logins",
    "tasks_replenish",
]
