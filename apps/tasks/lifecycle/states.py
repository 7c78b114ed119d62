"""The states of tasks, attempts and members; `transitions` lists the changes between them."""

from django.db import models


class TaskState(models.TextChoices):
    DRAFT = "draft", "draft"
    QUEUED = "queued", "queued"
    ALLOCATED = "allocated", "allocated"
    RUNNING = "running", "running"
    STOPPING = "stopping", "stopping"
    PAUSED = "paused", "paused"
    REJECTED = "rejected", "rejected"
    COMPLETED = "completed", "completed"
    FAILED = "failed", "failed"
    ABORTED = "aborted", "aborted"


class Ineligibility(models.TextChoices):
    """Why no pass considers a waiting task, whatever is free; also a code of its reasons."""

    ON_HOLD = "on_hold", "on hold"
    ADMIN_HOLD = "admin_hold", "on hold by a manager"
    DEPENDENCY = "dependency", "waiting for other tasks"


class AttemptState(models.TextChoices):
    ALLOCATED = "allocated", "allocated"
    STARTING = "starting", "starting"
    RUNNING = "running", "running"
    STOPPING = "stopping", "stopping"
    SUSPECT = "suspect", "suspect"
    LOST = "lost", "lost"
    FINISHED = "finished", "finished"


class MemberState(models.TextChoices):
    """The state of one member of an attempt, as its node last reported it."""

    ALLOCATED = "allocated", "allocated"
    STARTING = "starting", "starting"
    RUNNING = "running", "running"
    EXITED = "exited", "exited"


class AttemptTier(models.TextChoices):
    """Who covers an attempt: every level of its policies, the top one only, or no reservation."""

    RESERVED = "reserved", "Reserved"
    BORROWED = "borrowed", "Borrowed"
    OVER_QUOTA = "over_quota", "Over quota"


# A task that waits until a user releases it.
HOLDS = (Ineligibility.ON_HOLD, Ineligibility.ADMIN_HOLD)
# Tasks that hold hardware.
ADMITTED_STATES = (TaskState.ALLOCATED, TaskState.RUNNING, TaskState.STOPPING)
ENDED_STATES = (TaskState.COMPLETED, TaskState.FAILED, TaskState.ABORTED)
LIVE_STATES = tuple(state for state in TaskState if state not in ENDED_STATES)
LIVE_ATTEMPT_STATES = (
    AttemptState.ALLOCATED,
    AttemptState.STARTING,
    AttemptState.RUNNING,
    AttemptState.STOPPING,
    AttemptState.SUSPECT,
)
