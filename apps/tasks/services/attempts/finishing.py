"""How members and attempts end, and where their task goes then."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from apps.core.doorbell import after_commit
from apps.policies.models.rights import OnNodeLoss
from apps.tasks.details import shortened
from apps.tasks.models import Attempt, HeldDevice, Holding, Task
from apps.tasks.services.attempts.rows import entry, locked, tell
from apps.tasks.services.requeueing import task_wait_again
from apps.tasks.states import (
    ENDED_STATES,
    HOLDING_STATES,
    LIVE_ATTEMPT_STATES,
    AttemptState,
    MemberState,
    TaskState,
)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a member ended.

    `exit_code` is None when it never ran or its result is gone, `detail` is in the node's words.
    With `is_lost` its node went away under it: no fault of the task, which may run again. With
    `is_unfit` its node could not start it, without any fault of the task: it waits again.
    `is_stop_asked` False: it ended before its node was told to stop it.
    """

    exit_code: int | None
    detail: str = ""
    at: datetime | None = None
    is_lost: bool = False
    is_stop_asked: bool = True
    is_unfit: bool = False


@dataclass(frozen=True, slots=True)
class _Next:
    """Where a task goes from an attempt; `is_failure` counts against its retries."""

    state: TaskState
    detail: str
    is_failure: bool = False


def member_exited(*, holding_id: int, ended: Ended) -> bool:
    """The node says that a member ended; with the last one the attempt ends.

    A member that fails takes the others of its gang with it: they are asked to stop.
    """
    with transaction.atomic():
        holding = Holding.objects.get(pk=holding_id)
        attempt = locked(holding.attempt_id)
        at = ended.at or timezone.now()
        changed = (
            Holding.objects.filter(pk=holding_id)
            .exclude(state=MemberState.EXITED)
            .update(
                state=MemberState.EXITED,
                ended_at=at,
                exit_code=ended.exit_code,
                detail=shortened(ended.detail),
                is_stop_asked=ended.is_stop_asked and attempt.stop_asked_at is not None,
                is_lost=ended.is_lost,
                lock_token="",
            )
        )
        if not changed or attempt.state not in LIVE_ATTEMPT_STATES:
            return False
        if attempt.holdings.exclude(state=MemberState.EXITED).exists():
            if ended.exit_code != 0:
                _stop_others(attempt, holding, ended)
            return True
        _finish(attempt, at, is_unfit=ended.is_unfit)
        return True


def _stop_others(attempt: Attempt, holding: Holding, ended: Ended) -> None:
    """A gang runs whole or not at all. Without a target, the result decides as for one member."""
    if attempt.state == AttemptState.STOPPING:
        return
    code = "without an exit code" if ended.exit_code is None else f"with code {ended.exit_code}"
    words = f"Member {holding.rank} ended {code}. {ended.detail}".strip()
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
        stop_detail=shortened(words),
    )
    Task.objects.filter(
        pk=attempt.task_id,
        generation=attempt.generation,
        state__in=[TaskState.ALLOCATED, TaskState.RUNNING],
    ).update(state=TaskState.STOPPING, changed_at=timezone.now(), state_detail=shortened(words))
    tell(attempt, [entry(attempt, "task.stopping", reason=words)])
    after_commit(tasks=["execution.look"])


def _finish(attempt: Attempt, at: datetime, *, is_unfit: bool = False) -> None:
    """End the attempt, release what it held, and move the task on, all at once.

    Its own victims, where some still stop, stop from now on for whom it stops itself.
    """
    attempt.refresh_from_db()
    is_lost = attempt.holdings.filter(is_lost=True).exists()
    worst = _worst(attempt)
    Attempt.objects.filter(pk=attempt.pk, state=attempt.state).update(
        state=AttemptState.LOST if is_lost else AttemptState.FINISHED,
        ended_at=at,
        exit_code=worst.exit_code,
        detail=shortened(worst.detail),
    )
    Holding.objects.filter(attempt=attempt, released_at__isnull=True).update(released_at=at)
    HeldDevice.objects.filter(holding__attempt=attempt, released_at__isnull=True).update(
        released_at=at
    )
    victims = Attempt.objects.filter(stops_for=attempt, state__in=LIVE_ATTEMPT_STATES)
    victims.update(stops_for=attempt.stops_for_id)
    task = Task.objects.select_for_update().get(pk=attempt.task_id)
    if task.generation == attempt.generation and task.state in HOLDING_STATES:
        ended = Ended(worst.exit_code, worst.detail, at, is_lost=is_lost, is_unfit=is_unfit)
        _move_on(task, attempt, ended)
    after_commit(tasks=["allocation.run_pass", "execution.look"])


def _worst(attempt: Attempt) -> Ended:
    """The result of a gang is that of its first member that did not end well.

    What members did when they were stopped, because another one had failed, comes after that.
    """
    ordered = attempt.holdings.order_by("is_stop_asked", "rank")
    members = list(ordered.values_list("exit_code", "detail"))
    for code, detail in members:
        if code != 0:
            return Ended(exit_code=code, detail=detail)
    return Ended(exit_code=0)


def _move_on(task: Task, attempt: Attempt, ended: Ended) -> None:
    step = _next_step(task, attempt, ended)
    changes: dict[str, Any] = {
        "state": step.state,
        "state_detail": shortened(step.detail),
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
    tell(attempt, [entry(attempt, f"task.{step.state}", **data)])
    if step.state == TaskState.QUEUED:
        task_wait_again(attempt, at=timezone.now())


def _next_step(task: Task, attempt: Attempt, ended: Ended) -> _Next:
    is_stopped = attempt.state == AttemptState.STOPPING and attempt.stop_target
    if is_stopped and not _ended_by_itself(attempt):
        return _Next(TaskState(attempt.stop_target), attempt.stop_detail)
    if ended.is_lost:
        return _after_loss(task, attempt, ended.detail)
    if ended.is_unfit:
        return _Next(TaskState.QUEUED, ended.detail)
    if ended.exit_code == 0:
        return _Next(TaskState.COMPLETED, "")
    # In a gang, what the others did when they were stopped is not what went wrong.
    words = attempt.stop_detail or ended.detail or f"Ended with code {ended.exit_code}."
    if task.failures < task.retries:
        tried = f"Try {task.failures + 1} of {task.retries + 1} failed: {words}"
        return _Next(TaskState.QUEUED, tried, is_failure=True)
    return _Next(TaskState.FAILED, words)


def _ended_by_itself(attempt: Attempt) -> bool:
    """Whether a preempted attempt was over before any of its nodes was told to stop it.

    Its result stands then: it would be wrong to run again what is done.
    """
    if not attempt.is_preempted:
        return False
    stopped = Q(is_stop_asked=True) | Q(exit_code__isnull=True)
    return not attempt.holdings.filter(stopped).exists()


def _after_loss(task: Task, attempt: Attempt, words: str) -> _Next:
    """Lost with its node: again from the queue, unless its queue or the task itself say no."""
    if not task.is_restartable or attempt.queue.on_node_loss == OnNodeLoss.FAIL:
        return _Next(TaskState.FAILED, words)
    return _Next(TaskState.QUEUED, words)


def attempt_stop(*, attempt_id: UUID, target: TaskState, detail: str) -> bool:
    """Ask an attempt to end, and its task to go to `target` then; False: it ends anyway."""
    with transaction.atomic():
        attempt = locked(attempt_id)
        if attempt.state not in LIVE_ATTEMPT_STATES or attempt.state == AttemptState.STOPPING:
            return False
        _ask_to_stop(attempt, target=target, words=detail)
        return True


def attempt_give_up(*, attempt_id: UUID, detail: str) -> bool:
    """End an attempt that does not get started; it counts as a try of its task that failed."""
    with transaction.atomic():
        attempt = locked(attempt_id)
        if attempt.state not in {AttemptState.ALLOCATED, AttemptState.STARTING}:
            return False
        _ask_to_stop(attempt, target="", words=detail)
        return True


def attempt_end_unstarted(*, attempt_id: UUID) -> bool:
    """End a stopping attempt of which no member was ever launched; no node has to be asked."""
    with transaction.atomic():
        attempt = locked(attempt_id)
        started = attempt.holdings.exclude(state=MemberState.ALLOCATED).exists()
        if attempt.state != AttemptState.STOPPING or started:
            return False
        attempt.holdings.update(state=MemberState.EXITED, is_acknowledged=True)
        _finish(attempt, timezone.now())
        return True


def member_end_unsent(*, holding_id: int) -> bool:
    """End a member of a stopping attempt that was never launched; its node is not asked."""
    with transaction.atomic():
        attempt = locked(Holding.objects.values_list("attempt_id", flat=True).get(pk=holding_id))
        unsent = Holding.objects.filter(
            pk=holding_id, state=MemberState.ALLOCATED, launched_at__isnull=True
        )
        if attempt.state != AttemptState.STOPPING or not unsent.exists():
            return False
        member_exited(holding_id=holding_id, ended=Ended(None, "Never started."))
        members_acknowledged([holding_id])
        return True


def members_acknowledged(holding_ids: Iterable[int]) -> None:
    """The node has heard that the results are stored; it may drop its files."""
    Holding.objects.filter(pk__in=list(holding_ids), state=MemberState.EXITED).update(
        is_acknowledged=True
    )
