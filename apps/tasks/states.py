"""The states of tasks and attempts and every legal edge between them.

A trigger in the database holds the same table (`tests/tasks/test_states.py` compares the two), so
that no admin page can break it.
"""

from django.db import models
from django.utils.translation import gettext_lazy as _


class TaskState(models.TextChoices):
    DRAFT = "draft", _("draft")
    QUEUED = "queued", _("queued")
    ALLOCATED = "allocated", _("allocated")
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
    SUSPECT = "suspect", _("suspect")
    LOST = "lost", _("lost")
    FINISHED = "finished", _("finished")


class MemberState(models.TextChoices):
    """The state of one member of an attempt, as its node last reported it."""

    ALLOCATED = "allocated", _("allocated")
    STARTING = "starting", _("starting")
    RUNNING = "running", _("running")
    EXITED = "exited", _("exited")


TASK_EDGES: dict[str, frozenset[str]] = {
    "draft": frozenset({"queued", "aborted"}),
    "queued": frozenset({"allocated", "draft", "rejected", "aborted"}),
    # A task that could not start goes back to its queue. One that ends before its node reported it
    # as running completes or fails from here.
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
ADMITTED_STATES = (TaskState.ALLOCATED, TaskState.RUNNING, TaskState.STOPPING)
ENDED_STATES = (TaskState.COMPLETED, TaskState.FAILED, TaskState.ABORTED)
LIVE_ATTEMPT_STATES = (
    AttemptState.ALLOCATED,
    AttemptState.STARTING,
    AttemptState.RUNNING,
    AttemptState.STOPPING,
    AttemptState.SUSPECT,
)
