"""Tasks, their attempts, what those hold, and what they wrote."""

from apps.tasks.models.attempts import Attempt, AttemptLog, HeldDevice, Member, PastTier
from apps.tasks.models.dependencies import TaskDependency
from apps.tasks.models.gpu_use import AttemptUse, DeviceUse, IdleExemption, IdleWarning
from apps.tasks.models.node_use import NodeUse
from apps.tasks.models.permissions import TaskGroupPermission, TaskUserPermission
from apps.tasks.models.tasks import IdempotencyKey, ReasonChange, Task, TaskGroup

__all__ = [
    "Attempt",
    "AttemptLog",
    "AttemptUse",
    "DeviceUse",
    "HeldDevice",
    "IdempotencyKey",
    "IdleExemption",
    "IdleWarning",
    "Member",
    "NodeUse",
    "PastTier",
    "ReasonChange",
    "Task",
    "TaskDependency",
    "TaskGroup",
    "TaskGroupPermission",
    "TaskUserPermission",
]
