"""The start of members: from allocated to running.

A member is launched by the process that serves its node and holds its `lock_token`. Before its
first launch is sent, the claim can be released without effect. From then on only the node knows
whether it runs, so it stays *starting* and is launched again until the node answers.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F

from apps.core import clock
from apps.tasks.details import shorten
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES, AttemptState, MemberState
from apps.tasks.lifecycle.transitions import BEGIN_LAUNCH, RELEASE_LAUNCH
from apps.tasks.lifecycle.writers import attempt_transition
from apps.tasks.models import Attempt, Member
from apps.tasks.services.attempts.records import attempt_lock, attempt_record
from apps.tasks.services.attempts.starts import attempt_note_running, has_waiting_members
from apps.tasks.services.members.ledger import devices_claim

# The delay after a start that fails on the node, doubled each time.
BACK_OFF_S = 5
MOST_BACK_OFF_S = 600


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """The record before a launch is sent: the node's boot, and the end of the lease."""

    boot_id: str
    lease_until_s: float | None = None


def member_claim_start(*, member_id: int, token: str) -> bool:
    """Claim the launch of one member; False when it is not to be launched (any more, or yet).

    The member gets the devices of its victims here, once all of them are gone. A claim of another
    process is replaced: only the process that serves the node may call this.
    """
    with transaction.atomic():
        member = Member.objects.select_related("attempt").get(pk=member_id)
        attempt = attempt_lock(member.attempt_id)
        if attempt.state not in BEGIN_LAUNCH.sources or not _is_free(member, token):
            return False
        if not _has_capacity(attempt, member):
            return False
        claimed = Member.objects.filter(
            pk=member_id, state=member.state, lock_token=member.lock_token
        ).update(state=MemberState.STARTING, lock_token=token)
        if not claimed:
            return False
        attempt_transition(BEGIN_LAUNCH, attempt, lock_token=token, not_before=clock.now())
        return True


def _is_free(member: Member, token: str) -> bool:
    if member.state == MemberState.STARTING:
        return member.lock_token != token
    return member.state == MemberState.ALLOCATED


def _has_capacity(attempt: Attempt, member: Member) -> bool:
    blockers = attempt.blocked_by.filter(state__in=LIVE_ATTEMPT_STATES)
    return not blockers.exists() and devices_claim(member)


def member_keep_start(*, member_id: int, token: str, detail: str) -> bool:
    """Whether a claimed member is still to be launched.

    Args:
        detail: why the launch waits, shown with the task.
    """
    with transaction.atomic():
        member = Member.objects.get(pk=member_id)
        attempt = attempt_lock(member.attempt_id)
        if attempt.state != AttemptState.STARTING:
            return False
        if not _mine(member_id, token).update(detail=shorten(detail)):
            return False
        if detail != member.detail:
            attempt_record(attempt, [])
        return True


def member_confirm_start(*, member_id: int, token: str, launching: LaunchRecord) -> bool:
    """Whether a claimed member is still to be launched; called right before the launch.

    From now on its launch may be under way. Later changes of the attempt are sent to the node,
    which orders launch and stop.
    """
    with transaction.atomic():
        member = Member.objects.get(pk=member_id)
        attempt = attempt_lock(member.attempt_id)
        if attempt.state != AttemptState.STARTING:
            return False
        now = clock.now()
        sent = _mine(member_id, token).update(
            detail="",
            boot_id=launching.boot_id,
            lease_until_s=launching.lease_until_s,
            launched_at=member.launched_at or now,
        )
        if not sent:
            return False
        Attempt.objects.filter(pk=attempt.pk).update(not_before=now)
        if member.detail:
            attempt_record(attempt, [])
        return True


def member_release_start(
    *, member_id: int, token: str, delay_s: float, detail: str, is_unsent: bool = False
) -> None:
    """Release the claim, and try again after `delay_s`.

    Args:
        is_unsent: the first launch of this member has certainly not arrived.
    """
    with transaction.atomic():
        member = Member.objects.get(pk=member_id)
        attempt = attempt_lock(member.attempt_id)
        changes: dict[str, Any] = {"lock_token": "", "detail": shorten(detail)}
        if is_unsent or member.launched_at is None:
            changes.update(state=MemberState.ALLOCATED, launched_at=None)
        if not _mine(member_id, token).update(**changes):
            return
        _back_off(attempt, delay_s, detail)
        attempt_record(attempt, [])


def _mine(member_id: int, token: str) -> Any:
    return Member.objects.filter(pk=member_id, state=MemberState.STARTING, lock_token=token)


def _back_off(attempt: Attempt, delay_s: float, detail: str) -> None:
    others = attempt.members.exclude(state=MemberState.ALLOCATED).exists()
    changes: dict[str, Any] = {
        "not_before": clock.now() + timedelta(seconds=delay_s),
        "start_failures": F("start_failures") + (1 if delay_s else 0),
        "detail": shorten(detail),
    }
    if others or not attempt_transition(RELEASE_LAUNCH, attempt, **changes):
        Attempt.objects.filter(pk=attempt.pk).update(**changes)


def back_off_s(failures: int) -> float:
    """Seconds until the next try after so many failures in a row."""
    return float(min(BACK_OFF_S * 2 ** min(failures, 16), MOST_BACK_OFF_S))


def member_note_start(*, member_id: int, at: datetime) -> bool:
    """The node reports that a member runs; with the last member the task runs."""
    with transaction.atomic():
        member = Member.objects.get(pk=member_id)
        attempt = attempt_lock(member.attempt_id)
        if attempt.state not in LIVE_ATTEMPT_STATES:
            return False
        started = Member.objects.filter(
            pk=member_id, state__in=[MemberState.ALLOCATED, MemberState.STARTING]
        ).update(state=MemberState.RUNNING, started_at=at, detail="")
        if started and not has_waiting_members(attempt):
            attempt_note_running(attempt, at)
        return bool(started)
