"""Attempts whose node has fallen silent.

Nothing is stopped and nothing is started elsewhere: the attempt is *suspect* and stays charged. An
attempt that was asked to stop stays *stopping*: a stop is final.
"""

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.tasks.details import shorten
from apps.tasks.lifecycle.states import ADMITTED_STATES, AttemptState
from apps.tasks.lifecycle.transitions import ANSWERS_RUNNING, ANSWERS_STARTING, SUSPECT
from apps.tasks.lifecycle.writers import attempt_transition
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.services.attempts.records import attempt_entry, attempt_lock, attempt_record
from apps.tasks.services.attempts.starts import attempt_note_running, has_waiting_members


def attempt_suspect(*, attempt_id: UUID, detail: str) -> bool:
    """Mark an attempt as suspect: a node that runs a member of it is silent."""
    with transaction.atomic():
        attempt = attempt_lock(attempt_id)
        if attempt.state not in SUSPECT.sources:
            return False
        attempt_transition(SUSPECT, attempt, detail=shorten(detail))
        _set_detail(attempt, detail)
        attempt_record(attempt, [attempt_entry(attempt, "task.suspect", reason=detail)])
        return True


def attempt_unsuspect(*, attempt_id: UUID) -> bool:
    """Restore the state of an attempt from its members: all of its nodes answer again."""
    with transaction.atomic():
        attempt = attempt_lock(attempt_id)
        if attempt.state != AttemptState.SUSPECT:
            return False
        is_running = not has_waiting_members(attempt)
        begun = is_running and attempt.started_at is not None
        attempt_transition(ANSWERS_RUNNING if begun else ANSWERS_STARTING, attempt)
        _set_detail(attempt, "")
        attempt_record(attempt, [attempt_entry(attempt, "task.answers")])
        if is_running and not begun:
            attempt_note_running(attempt, _latest_start(attempt))
        return True


def _set_detail(attempt: Attempt, detail: str) -> None:
    Task.objects.filter(
        pk=attempt.task_id, generation=attempt.generation, state__in=ADMITTED_STATES
    ).update(state_detail=shorten(detail), changed_at=timezone.now())


def _latest_start(attempt: Attempt) -> datetime:
    starts = Member.objects.filter(attempt=attempt).values_list("started_at", flat=True)
    return max((at for at in starts if at is not None), default=timezone.now())
