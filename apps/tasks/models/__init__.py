"""Tasks, their attempts, what those hold, and what they wrote."""

from apps.tasks.models.attempts import Attempt, AttemptLog, HeldDevice, Holding
from apps.tasks.models.tasks import IdempotencyKey, ReasonChange, Run, Task

__all__ = [
    "Attempt",
    "AttemptLog",
    "HeldDevice",
    "Holding",
    "IdempotencyKey",
    "ReasonChange",
    "Run",
    "Task",
]
