"""Warns and stops tasks whose GPUs are known to be idle, as their queues say.

What is due is found without locks, and decided again for each attempt while it is locked: two runs
at once, or one that is repeated after a crash, warn and stop once.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

import structlog
from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Exists, F, OuterRef

from apps.accounts.models import User
from apps.core import clock
from apps.core.errors import Conflict, NotAllowed
from apps.events.services import NewEvent, audit_record, events_record
from apps.policies.models.policies import LEAST_IDLE_MINUTES
from apps.tasks.lifecycle.states import (
    ENDED_STATES,
    LIVE_ATTEMPT_STATES,
    AttemptState,
    TaskState,
)
from apps.tasks.models import Attempt, AttemptUse, IdleExemption, IdleWarning, Task
from apps.tasks.selectors.idle_attempts import attempts_idle, known_idle
from apps.tasks.services.attempts.ends import ask_to_stop
from apps.tasks.services.attempts.records import attempt_entry, attempt_lock, attempt_record
from apps.tasks.services.queues import can_manage_queue
from apps.tasks.topics import task_topics

log = structlog.get_logger(__name__)

MINUTE = timedelta(minutes=1)
# Of one run; the next one continues.
MOST_AT_ONCE = 500
# Without what the task runs.
_COLUMNS = (
    *("since", "stop_minutes", "stop_at", "attempt__use__used_at"),
    *("attempt__state", "attempt__started_at", "attempt__allocated_at"),
    *("attempt__queue__idle_warn_minutes", "attempt__queue__idle_stop_minutes"),
)
ENDING = (AttemptState.STOPPING, AttemptState.FINISHED, AttemptState.LOST)
IDLE = "Stopped: idle for {minutes} minutes; queue {queue} stops idle tasks."
USED = "Its GPUs are used again, or their use is not known any more."
NO_RULE = "Its queue has no rule for idle tasks any more."
EXEMPT = "It may be idle."


def idle_rules_apply(*, now: datetime | None = None) -> int:
    """Warn, stop, or withdraw the warning of attempts where that is due. Returns how many."""
    if now is None and clock.is_in_doubt():
        log.warning("idle.clock_in_doubt", advice="Set the clock, and start this again.")
        return 0
    now = now or clock.now()
    due = list(islice(_warned(now), MOST_AT_ONCE)) + list(islice(_to_warn(now), MOST_AT_ONCE))
    return sum(_apply_alone(attempt_id, now) for attempt_id in due)


@transaction.atomic
def task_set_idle_exemption(*, actor: User, task: Task, is_exempt: bool) -> Task:
    """Let a task be idle whatever its queue says, as long as it stays there, or no longer.

    Raises:
        NotAllowed: the actor does not manage the queue of the task.
        Conflict: it has ended, or is being stopped.
    """
    attempts = Attempt.objects.filter(task=task, state__in=LIVE_ATTEMPT_STATES)
    attempt = attempts.select_for_update(no_key=True).first()
    task = Task.objects.select_for_update(no_key=True).get(pk=task.pk)
    if not can_manage_queue(actor, task.queue_id):
        raise NotAllowed("You do not manage the queue of this task.")
    if task.state in {*ENDED_STATES, TaskState.STOPPING}:
        raise Conflict("The task has ended or is being stopped.")
    if is_exempt:
        values = {"by": actor, "at": clock.now()}
        _, is_changed = IdleExemption.objects.get_or_create(task=task, defaults=values)
    else:
        is_changed = bool(IdleExemption.objects.filter(task=task).delete()[0])
    if is_changed:
        _record_exemption(actor, task, is_exempt=is_exempt)
    warning = IdleWarning.objects.filter(pk=attempt.pk).first() if attempt and is_exempt else None
    if attempt is not None and warning is not None:
        _withdraw(warning, attempt, EXEMPT)
    return task


def _record_exemption(actor: User, task: Task, *, is_exempt: bool) -> None:
    policy_id = task.queue.policy_id if task.queue is not None else None
    entry = NewEvent(
        kind="task.idle_exempted" if is_exempt else "task.idle_exemption_ended",
        object_type="task",
        object_id=task.pk,
        queue_id=task.queue_id,
        policy_id=policy_id,
        actor_id=actor.pk,
        data={"name": task.name},
        is_audited=True,
    )
    events_record([entry], topics=task_topics(task.pk, queue_id=task.queue_id, policy_id=policy_id))


def _warned(now: datetime) -> Iterator[UUID]:
    """Attempts whose warning does not hold any more, or that are to be stopped by now."""
    rows = IdleWarning.objects.select_related("attempt__queue", "attempt__use").only(*_COLUMNS)
    exempt = Exists(IdleExemption.objects.filter(task=OuterRef("attempt__task")))
    # What can be done nothing about now has no place among the others.
    rows = rows.filter(attempt__state__in=(AttemptState.RUNNING, *ENDING))
    due_first = F("stop_at").asc(nulls_last=True)
    for one in rows.annotate(is_exempt=exempt).order_by(due_first, "pk"):
        attempt = one.attempt
        if (
            (one.stop_at is not None and one.stop_at <= now)
            or one.stop_minutes != attempt.queue.idle_stop_minutes
            or attempt.state in ENDING
            or _withdrawal(one, attempt, is_exempt=one.is_exempt)
        ):
            yield attempt.pk


def _to_warn(now: datetime) -> Iterator[UUID]:
    rows = attempts_idle(LEAST_IDLE_MINUTES * MINUTE, now).filter(
        state=AttemptState.RUNNING,
        queue__idle_warn_minutes__isnull=False,
        idle_warning__isnull=True,
        task__idle_exemption__isnull=True,
    )
    columns = ("pk", "idle_since", "queue__idle_warn_minutes")
    for pk, since, minutes in rows.order_by("pk").values_list(*columns):
        if now - since >= minutes * MINUTE:
            yield pk


def _apply_alone(attempt_id: UUID, now: datetime) -> bool:
    """Whatever becomes of one attempt, the rule holds for the others."""
    try:
        return _apply(attempt_id, now)
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        log.exception("idle.failed", attempt=str(attempt_id))
        return False


def _apply(attempt_id: UUID, now: datetime) -> bool:
    """Do what is due for this attempt; False where nothing is."""
    with transaction.atomic():
        attempt = attempt_lock(attempt_id)
        # Exemptions are given under this lock.
        task = Task.objects.select_for_update(no_key=True).get(pk=attempt.task_id)
        is_exempt = IdleExemption.objects.filter(task=task).exists()
        warning = IdleWarning.objects.filter(pk=attempt_id).first()
        if attempt.state in ENDING:
            return warning is not None and bool(warning.delete())
        if attempt.state != AttemptState.RUNNING:
            return False
        if warning is None:
            return not is_exempt and _warn(attempt, now)
        if words := _withdrawal(warning, attempt, is_exempt=is_exempt):
            return _withdraw(warning, attempt, words)
        if warning.stop_minutes != attempt.queue.idle_stop_minutes:
            return _warn(attempt, now)
        return _stop(warning, attempt, task, now)


def _withdrawal(warning: IdleWarning, attempt: Attempt, *, is_exempt: bool) -> str:
    """Why the warning does not hold any more; empty where it does."""
    if is_exempt:
        return EXEMPT
    if attempt.queue.idle_warn_minutes is None:
        return NO_RULE
    return USED if _idle_since(attempt) > warning.since else ""


def _idle_since(attempt: Attempt) -> datetime:
    """When it began, or used a GPU last: since then its GPUs were idle, or nothing is known."""
    use: AttemptUse | None = getattr(attempt, "use", None)
    since = attempt.started_at or attempt.allocated_at
    return since if use is None or use.used_at is None else max(since, use.used_at)


def _warn(attempt: Attempt, now: datetime) -> bool:
    """Warn, or warn again with the current rule of the queue; it gets the time between the two."""
    warn, stop = attempt.queue.idle_warn_minutes, attempt.queue.idle_stop_minutes
    since = _idle_since(attempt)
    idle = known_idle(attempt, since, now)
    if warn is None or idle is None or idle < warn * MINUTE:
        return False
    left = None if stop is None else stop - warn
    IdleWarning.objects.update_or_create(
        attempt=attempt,
        defaults={
            "since": since,
            "warned_at": now,
            "stop_minutes": stop,
            "stop_at": None if left is None else now + left * MINUTE,
        },
    )
    data = {"idle_minutes": idle // MINUTE, "minutes_left": left}
    attempt_record(attempt, [attempt_entry(attempt, "task.idle_warning", **data)])
    return True


def _withdraw(warning: IdleWarning, attempt: Attempt, words: str) -> bool:
    warning.delete()
    attempt_record(attempt, [attempt_entry(attempt, "task.idle_warning_withdrawn", reason=words)])
    return True


def _stop(warning: IdleWarning, attempt: Attempt, task: Task, now: datetime) -> bool:
    """Stop it through the grace period of its queue; it ends as aborted, whatever its result."""
    if warning.stop_minutes is None or warning.stop_at is None or now < warning.stop_at:
        return False
    idle, needed = known_idle(attempt, warning.since, now), warning.stop_minutes * MINUTE
    if idle is None or idle < needed:
        # It was not known all the time whether it was idle.
        left = MINUTE if idle is None else needed - idle
        IdleWarning.objects.filter(pk=warning.pk).update(stop_at=now + left)
        attempt_record(attempt, [])
        return False
    words = IDLE.format(minutes=warning.stop_minutes, queue=attempt.queue.name)
    warning.delete()
    ask_to_stop(attempt, target=TaskState.ABORTED, words=words)
    data = {"name": task.name, "reason": words}
    audit_record("task.stopped_idle", actor=None, object_type="task", object_id=task.pk, data=data)
    return True
