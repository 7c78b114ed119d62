"""Checkpoints: a task reports that its state is saved, and a preemption loses nothing older."""

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Conflict, NotAllowed
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES
from apps.tasks.models import Attempt, Task
from apps.tasks.services.attempts.records import attempt_record


def attempt_note_checkpoint(*, attempt_id: UUID, at: datetime) -> bool:
    """Note when an attempt saved its state: never before its last report, never in the future."""
    at = min(at, timezone.now())
    changed = Attempt.objects.filter(
        Q(checkpointed_at__isnull=True) | Q(checkpointed_at__lt=at),
        pk=attempt_id,
        state__in=LIVE_ATTEMPT_STATES,
        # The clock of the node differs slightly, and `started_at` is the time of the node's report.
        started_at__isnull=False,
        allocated_at__lte=at,
    ).update(checkpointed_at=at)
    if changed:
        attempt_record(Attempt.objects.get(pk=attempt_id), [])
    return bool(changed)


def task_checkpoint(*, actor: User, task: Task) -> Attempt:
    """Note that the state of a task is saved as of now; its owner or the task itself reports it.

    Raises:
        NotAllowed: the task has another owner.
        Conflict: it does not run.
    """
    if task.owner_id != actor.pk:
        raise NotAllowed("Only the owner of a task can say that its state is saved.")
    with transaction.atomic():
        live = Attempt.objects.filter(task=task, state__in=LIVE_ATTEMPT_STATES)
        attempt = live.select_for_update(no_key=True).first()
        if attempt is None or attempt.started_at is None:
            raise Conflict("The task does not run: there is nothing to save.")
        attempt_note_checkpoint(attempt_id=attempt.pk, at=timezone.now())
    attempt.refresh_from_db()
    return attempt
