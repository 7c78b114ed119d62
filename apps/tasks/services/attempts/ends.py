"""Stops and ends of attempts; the end releases what an attempt held and moves its task on."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from apps.core.notifications import NOTIFY_ALLOCATION, NOTIFY_EXECUTION, after_commit
from apps.policies.models import Queue
from apps.tasks.details import shorten
from apps.tasks.lifecycle.states import (
    ADMITTED_STATES,
    ENDED_STATES,
    LIVE_ATTEMPT_STATES,
    AttemptState,
    MemberState,
    TaskState,
)
from apps.tasks.lifecycle.transitions import ASK_TO_STOP, DEQUEUE, FINISH, LOSE, REQUEUE, STOP
from apps.tasks.lifecycle.writers import (
    TaskSubject,
    attempt_transition,
    task_transition,
    tasks_lock_and_transition,
)
from apps.tasks.models import Attempt, HeldDevice, Member, Task
from apps.tasks.services.attempts.next_state import MemberResult, NextState, next_state
from apps.tasks.services.attempts.records import attempt_lock
from apps.tasks.services.task_groups import task_regroup


def attempt_stop(*, attempt_id: UUID, target: TaskState, detail: str) -> bool:
    """Ask an attempt to end and its task to go to `target`; False: it is ending already."""
    with transaction.atomic():
        attempt = attempt_lock(attempt_id)
        if attempt.state not in LIVE_ATTEMPT_STATES or attempt.state == AttemptState.STOPPING:
            return False
        ask_to_stop(attempt, target=target, words=detail)
        return True


def attempt_give_up(*, attempt_id: UUID, detail: str, target: str = "") -> bool:
    """Ask an attempt that cannot be started to end, and its task to go to `target`.

    Args:
        target: empty: it counts as a failed try of its task.

    Returns:
        False where all of it runs, or it is ending already.
    """
    with transaction.atomic():
        attempt = attempt_lock(attempt_id)
        if attempt.state not in {AttemptState.ALLOCATED, AttemptState.STARTING}:
            return False
        ask_to_stop(attempt, target=target, words=detail)
        return True


def attempt_end_unstarted(*, attempt_id: UUID) -> bool:
    """End a stopping attempt that never launched a member; no node has to be asked."""
    with transaction.atomic():
        attempt = attempt_lock(attempt_id)
        started = attempt.members.exclude(state=MemberState.ALLOCATED).exists()
        if attempt.state != AttemptState.STOPPING or started:
            return False
        attempt.members.update(state=MemberState.EXITED, is_acknowledged=True)
        attempt_finish(attempt, timezone.now())
        return True


def attempt_withdraw(*, attempt_id: UUID, detail: str) -> bool:
    """Put the task back into its queue, with its old time of submission.

    Returns:
        False where a launch has begun: from then on only the node knows its state.
    """
    with transaction.atomic():
        attempt = Attempt.objects.select_for_update(no_key=True).get(pk=attempt_id)
        if attempt.state != AttemptState.ALLOCATED:
            return False
        attempt_stop(attempt_id=attempt_id, target=TaskState.QUEUED, detail=detail)
        return attempt_end_unstarted(attempt_id=attempt_id)


def ask_to_stop(attempt: Attempt, *, target: str, words: str) -> None:
    """Ask a locked attempt to stop; with an empty target its result decides where its task goes."""
    detail = shorten(words)
    attempt_transition(ASK_TO_STOP, attempt, stop_target=target, stop_detail=detail)
    task_transition(
        STOP,
        [TaskSubject.of(attempt, reason=words)],
        generation=attempt.generation,
        columns={"state_detail": detail},
    )


def attempt_finish(attempt: Attempt, at: datetime, *, is_unfit: bool = False) -> None:
    """End a locked attempt, release what it held, and move its task on, all at once.

    Its own victims that still stop are charged to its beneficiary from now on.
    """
    attempt.refresh_from_db()
    ended = _result(attempt, at, is_unfit=is_unfit)
    before = Task.objects.get(pk=attempt.task_id)
    after = next_state(before, attempt, ended)
    # Locked before the task, and until the end: no request closes the queue or changes its rules.
    queue = _queue_lock(attempt.queue_id) if after.transition is REQUEUE else None
    hold = _hold_of_array(before.array_id) if queue is not None else ""
    task = Task.objects.select_for_update().get(pk=attempt.task_id)
    attempt_transition(
        LOSE if ended.is_lost else FINISH,
        attempt,
        at=at,
        exit_code=ended.exit_code,
        detail=shorten(ended.detail),
    )
    Member.objects.filter(attempt=attempt, released_at__isnull=True).update(released_at=at)
    HeldDevice.objects.filter(member__attempt=attempt, released_at__isnull=True).update(
        released_at=at
    )
    victims = Attempt.objects.filter(stops_for=attempt, state__in=LIVE_ATTEMPT_STATES)
    victims.update(stops_for=attempt.stops_for_id)
    if task.generation == attempt.generation and task.state in ADMITTED_STATES:
        _move_on(task, attempt, ended, after)
        if queue is not None:
            _wait_again(attempt, queue, hold=hold)
    after_commit(notify=[NOTIFY_ALLOCATION, NOTIFY_EXECUTION])


def _result(attempt: Attempt, at: datetime, *, is_unfit: bool) -> MemberResult:
    """The result of a gang is that of its first member that did not end well.

    Results of members that were stopped because another one had failed count less.
    """
    is_lost = attempt.members.filter(is_lost=True).exists()
    ordered = attempt.members.order_by("is_stop_asked", "rank")
    results = list(ordered.values_list("exit_code", "detail"))
    code, detail = next((one for one in results if one[0] != 0), (0, ""))
    return MemberResult(code, detail, at, is_lost=is_lost, is_unfit=is_unfit)


def _move_on(task: Task, attempt: Attempt, ended: MemberResult, after: NextState) -> None:
    columns: dict[str, Any] = {
        "state_detail": shorten(after.detail),
        "exit_code": ended.exit_code,
        "failures": task.failures + after.is_failure,
    }
    if after.transition.target in ENDED_STATES:
        columns["ended_at"] = ended.at
    data = {"exit_code": ended.exit_code, "detail": after.detail}
    if ended.is_lost:
        data["cause"] = "node_loss"
    subject = TaskSubject.of(attempt, **data)
    if not task_transition(
        after.transition, [subject], generation=task.generation, columns=columns
    ):
        # Else it would stay admitted without an attempt.
        target = after.transition.target
        raise RuntimeError(f"no transition leads task {task.pk} from {task.state} to {target}")


def _queue_lock(queue_id: int) -> Queue:
    return Queue.objects.select_for_update(no_key=True, of=("self",)).get(pk=queue_id)


def _hold_of_array(array_id: UUID | None) -> str:
    """The hold of an array, which nobody changes until the end; empty where there is none."""
    if array_id is None:
        return ""
    array = Task.objects.select_for_update(no_key=True).get(pk=array_id)
    return array.ineligible_code if array.is_held else ""


def _wait_again(attempt: Attempt, queue: Queue, *, hold: str) -> None:
    """Let the task wait among its equals, by the current rules, and on hold as its array is.

    Where its queue was closed meanwhile, it becomes a draft instead. A placement that was kept for
    it is used by the next pass.
    """
    if queue.removed_at is None:
        if hold:
            Task.objects.filter(pk=attempt.task_id).update(ineligible_code=hold)
        task_regroup(attempt.task_id, policy_id=queue.policy_id)
        return
    tasks_lock_and_transition(
        DEQUEUE,
        [attempt.task_id],
        columns={"state_detail": shorten(f"Queue {queue.name} was closed while the task ran.")},
        data=TaskSubject.of(attempt).data,
    )
