"""Attempts whose node has fallen silent.

Nothing is killed and nothing started elsewhere: the attempt is *suspect* and stays charged. What
was asked to stop is left *stopping*: nobody may take that back.
"""

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.tasks.details import shortened
from apps.tasks.models import Attempt, Holding, Task
from apps.tasks.services.attempts.rows import entry, locked, tell
from apps.tasks.services.attempts.starting import attempt_runs, members_waiting
from apps.tasks.states import HOLDING_STATES, AttemptState

BEFORE_SILENCE = (AttemptState.STARTING, AttemptState.RUNNING)


def attempt_suspect(*, attempt_id: UUID, detail: str) -> bool:
    """A node that runs a member of it is silent."""
    with transaction.atomic():
        attempt = locked(attempt_id)
        if attempt.state not in BEFORE_SILENCE:
            return False
        Attempt.objects.filter(pk=attempt.pk, state=attempt.state).update(
            state=AttemptState.SUSPECT, detail=shortened(detail)
        )
        _say(attempt, detail)
        tell(attempt, [entry(attempt, "task.suspect", reason=detail)])
        return True


def attempt_unsuspect(*, attempt_id: UUID) -> bool:
    """All of its nodes answer again: it is what its members are."""
    with transaction.atomic():
        attempt = locked(attempt_id)
        if attempt.state != AttemptState.SUSPECT:
            return False
        is_running = not members_waiting(attempt)
        begun = is_running and attempt.started_at is not None
        state = AttemptState.RUNNING if begun else AttemptState.STARTING
        Attempt.objects.filter(pk=attempt.pk, state=attempt.state).update(state=state, detail="")
        attempt.state = state
        _say(attempt, "")
        tell(attempt, [entry(attempt, "task.answers")])
        if is_running and not begun:
            attempt_runs(attempt, _latest_start(attempt))
        return True


def _say(attempt: Attempt, detail: str) -> None:
    Task.objects.filter(
        pk=attempt.task_id, generation=attempt.generation, state__in=HOLDING_STATES
    ).update(state_detail=shortened(detail), changed_at=timezone.now())


def _latest_start(attempt: Attempt) -> datetime:
    starts = Holding.objects.filter(attempt=attempt).values_list("started_at", flat=True)
    return max((at for at in starts if at is not None), default=timezone.now())
