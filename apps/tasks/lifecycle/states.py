"""The states of tasks, attempts and members; `transitions` lists the changes between them."""

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
