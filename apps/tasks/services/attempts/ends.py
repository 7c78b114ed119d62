"""Ends of members and attempts, and the next state of their task."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from apps.core.notifications import after_commit
from apps.policies.models.policies import OnNodeLoss
from apps.tasks.details import shorten
from apps.tasks.models import Attempt, HeldDevice, Member, Task
from apps.tasks.services.attempts.records import attempt_entry, attempt_lock, attempt_record
from apps.tasks.services.requeue import task_requeue
from apps.tasks.states import (
    ADMITTED_STATES,
    ENDED_STATES,
    LIVE_ATTEMPT_STATES,
    AttemptState,
    MemberState,
    TaskState,
)


@dataclass(frozen=True, slots=True)
class MemberResult:
    """How a member ended.

    `exit_code` is None when it never ran or its result is lost; `detail` is in the node's words.
    With `is_lost` its node was lost: no fault of the task, which may run again. With `is_unfit` its
    node could not start it, without any fault of the task: it waits again. `is_stop_asked` False:
    it ended before its node was asked to stop it.
    """

    exit_code: int | None
    detail: str = ""
    at: datetime | None = None
    is_lost: bool = False
    is_stop_asked: bool = True
    is_unfit: bool = False


@dataclass(frozen=True, slots=True)
class _Next:
    """The next state of a task after an attempt; `is_failure` counts against its retries."""

    state: TaskState
    detail: str
    is_failure: bool = False


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
        _finish(attempt, at, is_unfit=ended.is_unfit)
        return True


def _stop_others(attempt: Attempt, member: Member, ended: MemberResult) -> None:
    """Stop the rest of a gang: it runs whole or not at all. Without a target the result decides."""
    if attempt.state == AttemptState.STOPPING:
        return
    code = "without an exit code" if ended.exit_code is None else f"with code {ended.exit_code}"
    words = f"Member {member.rank} ended {code}. {ended.detail}".strip()
    target = ""
    if ended.is_lost:
        target = _after_loss(Task.objects.get(pk=attempt.task_id), attempt, words).state
    elif ended.is_unfit:
        target = TaskState.QUEUED
    _ask_to_stop(attempt, target=target, words=words)


def _ask_to_stop(attempt: Attempt, *, target: str, words: str) -> None:
    Attempt.objects.filter(pk=attempt.pk, state=attempt.state).update(
        state=AttemptState.STOPPING,
        stop_asked_at=timezone.now(),
        stop_target=target,
        stop_detail=shorten(words),
    )
    Task.objects.filter(
        pk=attempt.task_id,
        generation=attempt.generation,
        state__in=[TaskState.ALLOCATED, TaskState.RUNNING],
    ).update(state=TaskState.STOPPING, changed_at=timezone.now(), state_detail=shorten(words))
    attempt_record(attempt, [attempt_entry(attempt, "task.stopping", reason=words)])
    after_commit(notify=["execution.poll"])


def _finish(attempt: Attempt, at: datetime, *, is_unfit: bool = False) -> None:
    """End the attempt, release what it held, and move the task on, all at once.

    Its own victims that still stop are charged to its beneficiary from now on.
    """
    attempt.refresh_from_db()
    is_lost = attempt.members.filter(is_lost=True).exists()
    worst = _worst(attempt)
    Attempt.objects.filter(pk=attempt.pk, state=attempt.state).update(
        state=AttemptState.LOST if is_lost else AttemptState.FINISHED,
        ended_at=at,
        exit_code=worst.exit_code,
        detail=shorten(worst.detail),
    )
    Member.objects.filter(attempt=attempt, released_at__isnull=True).update(released_at=at)
    HeldDevice.objects.filter(member__attempt=attempt, released_at__isnull=True).update(
        released_at=at
    )
    victims = Attempt.objects.filter(stops_for=attempt, state__in=LIVE_ATTEMPT_STATES)
    victims.update(stops_for=attempt.stops_for_id)
    task = Task.objects.select_for_update().get(pk=attempt.task_id)
    if task.generation == attempt.generation and task.state in ADMITTED_STATES:
        ended = MemberResult(worst.exit_code, worst.detail, at, is_lost=is_lost, is_unfit=is_unfit)
        _move_on(task, attempt, ended)
    after_commit(notify=["allocation.run_pass", "execution.poll"])


def _worst(attempt: Attempt) -> MemberResult:
    """The result of a gang is that of its first member that did not end well.

    Results of members that were stopped because another one had failed count less.
    """
    ordered = attempt.members.order_by("is_stop_asked", "rank")
    members = list(ordered.values_list("exit_code", "detail"))
    for code, detail in members:
        if code != 0:
            return MemberResult(exit_code=code, detail=detail)
    return MemberResult(exit_code=0)


def _move_on(task: Task, attempt: Attempt, ended: MemberResult) -> None:
    step = _next_step(task, attempt, ended)
    changes: dict[str, Any] = {
        "state": step.state,
        "state_detail": shorten(step.detail),
        "exit_code": ended.exit_code,
        "changed_at": timezone.now(),
        "failures": task.failures + step.is_failure,
    }
    if step.state in ENDED_STATES:
        changes["ended_at"] = ended.at
    Task.objects.filter(pk=task.pk, state=task.state, generation=task.generation).update(**changes)
    data = {"exit_code": ended.exit_code, "detail": step.detail}
    if ended.is_lost:
        data["cause"] = "node_loss"
    attempt_record(attempt, [attempt_entry(attempt, f"task.{step.state}", **data)])
    if step.state == TaskState.QUEUED:
        task_requeue(attempt, at=timezone.now())


def _next_step(task: Task, attempt: Attempt, ended: MemberResult) -> _Next:
    is_stopped = attempt.state == AttemptState.STOPPING and attempt.stop_target
    if is_stopped and not _ended_by_itself(attempt):
        return _Next(TaskState(attempt.stop_target), attempt.stop_detail)
    if ended.is_lost:
        return _after_loss(task, attempt, ended.detail)
    if ended.is_unfit:
        return _Next(TaskState.QUEUED, ended.detail)
    if ended.exit_code == 0:
        return _Next(TaskState.COMPLETED, "")
    # In a gang, the results of members that were stopped are not the cause.
    words = attempt.stop_detail or ended.detail or f"Ended with code {ended.exit_code}."
    if task.failures < task.retries:
        tried = f"Try {task.failures + 1} of {task.retries + 1} failed: {words}"
        return _Next(TaskState.QUEUED, tried, is_failure=True)
    return _Next(TaskState.FAILED, words)


def _ended_by_itself(attempt: Attempt) -> bool:
    """Whether a preempted attempt ended before any of its nodes was asked to stop it.

    Its result counts then: finished work is not run again.
    """
    if not attempt.is_preempted:
        return False
    stopped = Q(is_stop_asked=True) | Q(exit_code__isnull=True)
    return not attempt.members.filter(stopped).exists()


def _after_loss(task: Task, attempt: Attempt, words: str) -> _Next:
    """The next state after the loss of a node: queued, unless the queue or the task forbid it."""
    if not task.is_restartable or attempt.queue.on_node_loss == OnNodeLoss.FAIL:
        return _Next(TaskState.FAILED, words)
    return _Next(TaskState.QUEUED, words)


def attempt_stop(*, attempt_id: UUID, target: TaskState, detail: str) -> bool:
    """Ask an attempt to end and its task to go to `target`; False: it is ending already."""
    with transaction.atomic():
        attempt = attempt_lock(attempt_id)
        if attempt.state not in LIVE_ATTEMPT_STATES or attempt.state == AttemptState.STOPPING:
            return False
        _ask_to_stop(attempt, target=target, words=detail)
        return True


def attempt_give_up(*, attempt_id: UUID, detail: str) -> bool:
    """End an attempt that cannot be started; it counts as a failed try of its task."""
    with transaction.atomic():
        attempt = attempt_lock(attempt_id)
        if attempt.state not in {AttemptState.ALLOCATED, AttemptState.STARTING}:
            return False
        _ask_to_stop(attempt, target="", words=detail)
        return True


def attempt_end_unstarted(*, attempt_id: UUID) -> bool:
    """End a stopping attempt that never launched a member; no node has to be asked."""
    with transaction.atomic():
        attempt = attempt_lock(attempt_id)
        started = attempt.members.exclude(state=MemberState.ALLOCATED).exists()
        if attempt.state != AttemptState.STOPPING or started:
            return False
        attempt.members.update(state=MemberState.EXITED, is_acknowledged=True)
        _finish(attempt, timezone.now())
        return True


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
