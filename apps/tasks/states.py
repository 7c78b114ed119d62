"""The states of tasks and attempts and every legal edge between them.

The one table in code; a trigger in the database holds the same (`tests/tasks/test_states.py`
compares the two), so that no admin page can break it.
"""

from django.db import models
from django.utils.translation import gettext_lazy as _


class TaskState(models.TextChoices):
    DRAFT = "draft", _("draft")
    QUEUED = "queued", _("waiting")
    ALLOCATED = "allocated", _("starting")
    RUNNING = "running", _("running")
    STOPPING = "stopping", _("stopping")
    PAUSED = "paused", _("paused")
    REJECTED = "rejected", _("rejected")
    COMPLETED = "completed", _("completed")
    FAILED = "failed", _("failed")
    ABORTED = "aborted", _("aborted")


class AttemptState(models.TextChoices):
    ALLOCATED = "allocated", _("allocated")
    STARTING = "starting", _("starting")
    RUNNING = "running", _("running")
    STOPPING = "stopping", _("stopping")
    SUSPECT = "suspect", _("node silent")
    LOST = "lost", _("lost")
    FINISHED = "finished", _("finished")


class MemberState(models.TextChoices):
    """Where one member of an attempt is, as its node last told."""

    ALLOCATED = "allocated", _("allocated")
    STARTING = "starting", _("starting")
    RUNNING = "running", _("running")
    EXITED = "exited", _("ended")


TASK_EDGES: dict[str, frozenset[str]] = {
    "draft": frozenset({"queued", "aborted"}),
    "queued": frozenset({"allocated", "draft", "rejected", "aborted"}),
    # An attempt that could not start goes back, and one that ends before anybody saw it run
    # completes or fails from here.
    "allocated": frozenset({"running", "stopping", "queued", "completed", "failed", "aborted"}),
    "running": frozenset({"stopping", "completed", "failed", "queued"}),
    "stopping": frozenset({"queued", "paused", "aborted", "failed", "completed"}),
    "paused": frozenset({"queued", "aborted"}),
    "rejected": frozenset({"queued", "aborted"}),
    "completed": frozenset({"queued"}),
    "failed": frozenset({"queued"}),
    "aborted": frozenset({"queued"}),
}

ATTEMPT_EDGES: dict[str, frozenset[str]] = {
    "allocated": frozenset({"starting", "stopping", "lost", "finished"}),
    "starting": frozenset({"allocated", "running", "stopping", "suspect", "lost", "finished"}),
    "running": frozenset({"stopping", "suspect", "lost", "finished"}),
    "stopping": frozenset({"suspect", "lost", "finished"}),
    "suspect": frozenset({"starting", "running", "stopping", "lost", "finished"}),
    "lost": frozenset({"finished"}),
    "finished": frozenset(),
}

# Tasks that hold hardware.
HOLDING_STATES = (TaskState.ALLOCATED, TaskState.RUNNING, TaskState.STOPPING)
ENDED_STATES = (TaskState.COMPLETED, TaskState.FAILED, TaskState.ABORTED)
LIVE_ATTEMPT_STATES = (
    AttemptState.ALLOCATED,
    AttemptState.STARTING,
    AttemptState.RUNNING,
    AttemptState.STOPPING,
    AttemptState.SUSPECT,
)
