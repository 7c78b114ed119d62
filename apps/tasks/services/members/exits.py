"""Ends of members, as their nodes report them; with the last one the attempt ends."""

from collections.abc import Iterable

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from apps.tasks.details import shorten
from apps.tasks.lifecycle.states import (
    LIVE_ATTEMPT_STATES,
    AttemptState,
    MemberState,
    TaskState,
)
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.services.attempts.ends import ask_to_stop, attempt_finish
from apps.tasks.services.attempts.next_state import MemberResult, state_after_loss
from apps.tasks.services.attempts.records import attempt_lock


def member_note_exit(*, member_id: int, ended: MemberResult) -> bool:
    """The node reports that a member ended; with the last one the attempt ends.

    When a member fails, the other members of its gang are asked to stop.
    """
    with transaction.atomic():
        member = Member.objects.get(pk=member_id)
        attempt = attempt_lock(member.attempt_id)
        at = ended.at or timezone.now()
        changed = (
            Member.objects.filter(pk=member_id)
            .exclude(state=MemberState.EXITED)
            .update(
                state=MemberState.EXITED,
                ended_at=at,
                exit_code=ended.exit_code,
                detail=shorten(ended.detail),
                is_stop_asked=ended.is_stop_asked and attempt.stop_asked_at is not None,
                is_lost=ended.is_lost,
                lock_token="",
            )
        )
        if not changed or attempt.state not in LIVE_ATTEMPT_STATES:
            return False
        if attempt.members.exclude(state=MemberState.EXITED).exists():
            if ended.exit_code != 0:
                _stop_others(attempt, member, ended)
            return True
        # Nodes report in any order: the attempt ends with the member that ended last.
        last = attempt.members.aggregate(Max("ended_at"))["ended_at__max"]
        attempt_finish(attempt, last, is_unfit=ended.is_unfit)
        return True


def _stop_others(attempt: Attempt, member: Member, ended: MemberResult) -> None:
    """Stop the rest of a gang: it runs whole or not at all. Without a target the result decides."""
    if attempt.state == AttemptState.STOPPING:
        return
    code = "without an exit code" if ended.exit_code is None else f"with code {ended.exit_code}"
    words = f"Member {member.rank} ended {code}. {ended.detail}".strip()
    target = ""
    if ended.is_lost:
        task = Task.objects.get(pk=attempt.task_id)
        target = state_after_loss(task, attempt, words).transition.target
    elif ended.is_unfit:
        target = TaskState.QUEUED
    ask_to_stop(attempt, target=target, words=words)


def member_end_unsent(*, member_id: int) -> bool:
    """End a member of a stopping attempt that was never launched; its node is not asked."""
    with transaction.atomic():
        attempt = attempt_lock(
            Member.objects.values_list("attempt_id", flat=True).get(pk=member_id)
        )
        unsent = Member.objects.filter(
            pk=member_id, state=MemberState.ALLOCATED, launched_at__isnull=True
        )
        if attempt.state != AttemptState.STOPPING or not unsent.exists():
            return False
        member_note_exit(member_id=member_id, ended=MemberResult(None, "Never started."))
        members_acknowledge([member_id])
        return True


def members_acknowledge(member_ids: Iterable[int]) -> None:
    """Note that the node knows that the results are stored; it may remove its files."""
    Member.objects.filter(pk__in=list(member_ids), state=MemberState.EXITED).update(
        is_acknowledged=True
    )
