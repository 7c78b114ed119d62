"""An attempt runs once all of its members do."""

from datetime import datetime

from apps.tasks.details import shorten
from apps.tasks.lifecycle.states import AttemptState, MemberState
from apps.tasks.lifecycle.transitions import BEGIN_LAUNCH, NOTE_RUNNING, START
from apps.tasks.lifecycle.writers import TaskSubject, attempt_transition, task_transition
from apps.tasks.models import Attempt
from apps.tasks.selectors.attempts import resumption_of


def has_waiting_members(attempt: Attempt) -> bool:
    """Whether a member of the attempt has not started yet."""
    waiting = [MemberState.ALLOCATED, MemberState.STARTING]
    return attempt.members.filter(state__in=waiting).exists()


def attempt_note_running(attempt: Attempt, at: datetime) -> None:
    """All members of a locked attempt run. A suspect or stopping one only notes since when."""
    if attempt.state == AttemptState.ALLOCATED:
        attempt_transition(BEGIN_LAUNCH, attempt)
    if attempt.state == AttemptState.STARTING:
        attempt_transition(NOTE_RUNNING, attempt, at=at)
        task_transition(
            START,
            [TaskSubject.of(attempt)],
            generation=attempt.generation,
            columns={"state_detail": shorten(resumption_of(attempt).words)},
        )
    elif attempt.state == AttemptState.STOPPING and attempt.started_at is None:
        Attempt.objects.filter(pk=attempt.pk).update(started_at=at)
