"""From an allocated member to a running one.

A member is launched by the process that serves its node and holds its `lock_token`. Before its
first launch is sent it can be given back as if nothing had happened; from then on only the node
can tell whether it is there, so it stays *starting* and is launched again until the node answers.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F

from apps.core import clock
from apps.tasks.details import shortened
from apps.tasks.models import Attempt, Holding, Task
from apps.tasks.selectors.attempts import resumption_of
from apps.tasks.services.attempts.rows import entry, locked, tell
from apps.tasks.services.ledger import devices_claim
from apps.tasks.states import LIVE_ATTEMPT_STATES, AttemptState, MemberState, TaskState

# A start that fails on the node's side is tried again after so long, doubled each time.
BACK_OFF_S = 5
MOST_BACK_OFF_S = 600
BEFORE_RUNNING = (AttemptState.ALLOCATED, AttemptState.STARTING)


@dataclass(frozen=True, slots=True)
class Launching:
    """What is written down before a launch is sent: the node's boot, and the end of its lease."""

    boot_id: str
    lease_until_s: float | None = None


def member_claim_start(*, holding_id: int, token: str) -> bool:
    """Take the right to launch one member; False when it is not to be launched (any more, yet).

    What it takes over from others becomes its own here, once all of them are gone. A member that
    another process had claimed is taken over: only who serves its node may call this.
    """
    with transaction.atomic():
        holding = Holding.objects.select_related("attempt").get(pk=holding_id)
        attempt = locked(holding.attempt_id)
        if attempt.state not in BEFORE_RUNNING or not _is_free(holding, token):
            return False
        if not _has_room(attempt, holding):
            return False
        claimed = Holding.objects.filter(
            pk=holding_id, state=holding.state, lock_token=holding.lock_token
        ).update(state=MemberState.STARTING, lock_token=token)
        if not claimed:
            return False
        Attempt.objects.filter(pk=attempt.pk, state=attempt.state).update(
            state=AttemptState.STARTING, lock_token=token, not_before=clock.now()
        )
        return True


def _is_free(holding: Holding, token: str) -> bool:
    if holding.state == MemberState.STARTING:
        return holding.lock_token != token
    return holding.state == MemberState.ALLOCATED


def _has_room(attempt: Attempt, holding: Holding) -> bool:
    blockers = attempt.blocked_by.filter(state__in=LIVE_ATTEMPT_STATES)
    return not blockers.exists() and devices_claim(holding)


def member_keep_start(*, holding_id: int, token: str, detail: str) -> bool:
    """Whether a claimed member is still to be launched.

    Args:
        detail: what the launch waits for, shown with the task.
    """
    with transaction.atomic():
        holding = Holding.objects.get(pk=holding_id)
        attempt = locked(holding.attempt_id)
        if attempt.state != AttemptState.STARTING:
            return False
        if not _mine(holding_id, token).update(detail=shortened(detail)):
            return False
        if detail != holding.detail:
            tell(attempt, [])
        return True


def member_confirm_start(*, holding_id: int, token: str, launching: Launching) -> bool:
    """Whether a claimed member is still to be launched: asked right before it is.

    From now on its launch may be under way. What happens to the attempt after this answer is told
    to the node, which keeps launch and stop apart.
    """
    with transaction.atomic():
        holding = Holding.objects.get(pk=holding_id)
        attempt = locked(holding.attempt_id)
        if attempt.state != AttemptState.STARTING:
            return False
        now = clock.now()
        sent = _mine(holding_id, token).update(
            detail="",
            boot_id=launching.boot_id,
            lease_until_s=launching.lease_until_s,
            launched_at=holding.launched_at or now,
        )
        if not sent:
            return False
        Attempt.objects.filter(pk=attempt.pk).update(not_before=now)
        if holding.detail:
            tell(attempt, [])
        return True


def member_release_start(
    *, holding_id: int, token: str, delay_s: float, detail: str, is_unsent: bool = False
) -> None:
    """Give the right back, and try again after `delay_s`.

    Args:
        is_unsent: the first launch of this member has provably not arrived.
    """
    with transaction.atomic():
        holding = Holding.objects.get(pk=holding_id)
        attempt = locked(holding.attempt_id)
        changes: dict[str, Any] = {"lock_token": "", "detail": shortened(detail)}
        if is_unsent or holding.launched_at is None:
            changes.update(state=MemberState.ALLOCATED, launched_at=None)
        if not _mine(holding_id, token).update(**changes):
            return
        _back_off(attempt, delay_s, detail)
        tell(attempt, [])


def _mine(holding_id: int, token: str) -> Any:
    return Holding.objects.filter(pk=holding_id, state=MemberState.STARTING, lock_token=token)


def _back_off(attempt: Attempt, delay_s: float, detail: str) -> None:
    others = attempt.holdings.exclude(state=MemberState.ALLOCATED).exists()
    changes: dict[str, Any] = {
        "not_before": clock.now() + timedelta(seconds=delay_s),
        "start_failures": F("start_failures") + (1 if delay_s else 0),
        "detail": shortened(detail),
    }
    if not others and attempt.state == AttemptState.STARTING:
        changes["state"] = AttemptState.ALLOCATED
    Attempt.objects.filter(pk=attempt.pk, state=attempt.state).update(**changes)


def back_off_s(failures: int) -> float:
    """Seconds until the next try after so many failures in a row."""
    return float(min(BACK_OFF_S * 2 ** min(failures, 16), MOST_BACK_OFF_S))


def member_started(*, holding_id: int, at: datetime) -> bool:
    """The node says that a member runs; with the last member the task runs."""
    with transaction.atomic():
        holding = Holding.objects.get(pk=holding_id)
        attempt = locked(holding.attempt_id)
        if attempt.state not in LIVE_ATTEMPT_STATES:
            return False
        started = Holding.objects.filter(
            pk=holding_id, state__in=[MemberState.ALLOCATED, MemberState.STARTING]
        ).update(state=MemberState.RUNNING, started_at=at, detail="")
        if started and not members_waiting(attempt):
            attempt_runs(attempt, at)
        return bool(started)


def members_waiting(attempt: Attempt) -> bool:
    """Whether a member of the attempt has not started yet."""
    waiting = [MemberState.ALLOCATED, MemberState.STARTING]
    return attempt.holdings.filter(state__in=waiting).exists()


def attempt_runs(attempt: Attempt, at: datetime) -> None:
    """All members of a locked attempt run. One that is silent or stopping only notes since when."""
    if attempt.state == AttemptState.ALLOCATED:
        Attempt.objects.filter(pk=attempt.pk, state=attempt.state).update(
            state=AttemptState.STARTING
        )
        attempt.state = AttemptState.STARTING
    if attempt.state == AttemptState.STARTING:
        Attempt.objects.filter(pk=attempt.pk, state=attempt.state).update(
            state=AttemptState.RUNNING, started_at=at, detail="", start_failures=0
        )
        moved = Task.objects.filter(
            pk=attempt.task_id, state=TaskState.ALLOCATED, generation=attempt.generation
        ).update(
            state=TaskState.RUNNING,
            changed_at=clock.now(),
            state_detail=shortened(resumption_of(attempt).words),
        )
        tell(attempt, [entry(attempt, "task.running")] if moved else [])
    elif attempt.state == AttemptState.STOPPING and attempt.started_at is None:
        Attempt.objects.filter(pk=attempt.pk).update(started_at=at)
