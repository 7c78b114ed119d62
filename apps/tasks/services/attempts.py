"""What happens to an attempt on its nodes, written down edge by edge.

Every function is one transaction of conditional updates. A row that is not in the expected state
is left alone and the function says so: whoever asked acts on old news.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from apps.core.doorbell import after_commit
from apps.events.services import Entry, events_record
from apps.policies.models.rights import OnNodeLoss
from apps.tasks.models import Attempt, HeldDevice, Holding, Task
from apps.tasks.services.ledger import devices_claim
from apps.tasks.services.requeueing import task_wait_again
from apps.tasks.states import (
    ENDED_STATES,
    HOLDING_STATES,
    LIVE_ATTEMPT_STATES,
    AttemptState,
    MemberState,
    TaskState,
)
from apps.tasks.topics import task_topics

# A start that fails on the node's side is tried again after so long, doubled each time.
BACK_OFF_S = 5
MOST_BACK_OFF_S = 600


@dataclass(frozen=True, slots=True)
class Ended:
    """How a member ended.

    `exit_code` is None when it never ran or its result is gone, `detail` is in the node's words.
    With `is_lost` its node went away under it: no fault of the task, which may run again.
    `is_stop_asked` False: it ended before its node was told to stop it.
    """

    exit_code: int | None
    detail: str = ""
    at: datetime | None = None
    is_lost: bool = False
    is_stop_asked: bool = True


@dataclass(frozen=True, slots=True)
class _Next:
    """Where a task goes from an attempt; `is_failure` counts against its retries."""

    state: TaskState
    detail: str
    is_failure: bool = False


def member_claim_start(*, holding_id: int, token: str) -> bool:
    """Take the right to launch one member; False when it is not to be launched (any more, yet).

    What it takes over from others becomes its own here, once all of them are gone.
    """
    with transaction.atomic():
        holding = Holding.objects.select_related("attempt").get(pk=holding_id)
        attempt = _locked(holding.attempt_id)
        if attempt.state not in {AttemptState.ALLOCATED, AttemptState.STARTING}:
            return False
        if holding.state != MemberState.ALLOCATED or not _has_room(attempt, holding):
            return False
        claimed = Holding.objects.filter(pk=holding_id, state=MemberState.ALLOCATED).update(
            state=MemberState.STARTING
        )
        if not claimed:
            return False
        Attempt.objects.filter(pk=attempt.pk, state=attempt.state).update(
            state=AttemptState.STARTING, lock_token=token, not_before=timezone.now()
        )
        return True


def _has_room(attempt: Attempt, holding: Holding) -> bool:
    blockers = attempt.blocked_by.filter(state__in=LIVE_ATTEMPT_STATES)
    return not blockers.exists() and devices_claim(holding)


def member_confirm_start(*, holding_id: int, detail: str = "") -> bool:
    """Whether a claimed member is still to be launched: asked right before it is.

    From now on nobody takes the launch for lost before its window has closed. What happens to the
    attempt after this answer is told to the node, which keeps launch and stop apart.

    Args:
        detail: what the launch waits for, shown with the task.
    """
    with transaction.atomic():
        holding = Holding.objects.get(pk=holding_id)
        attempt = _locked(holding.attempt_id)
        if attempt.state != AttemptState.STARTING:
            return False
        claimed = Holding.objects.filter(pk=holding_id, state=MemberState.STARTING)
        if not claimed.update(detail=detail[:2000]):
            return False
        Attempt.objects.filter(pk=attempt.pk).update(not_before=timezone.now())
        if detail != holding.detail:
            _tell(attempt, [])
        return True


def member_release_start(*, holding_id: int, delay_s: float, detail: str) -> None:
    """Give the right back: nothing was started on the node, try again after `delay_s`."""
    with transaction.atomic():
        holding = Holding.objects.get(pk=holding_id)
        attempt = _locked(holding.attempt_id)
        Holding.objects.filter(pk=holding_id, state=MemberState.STARTING).update(
            state=MemberState.ALLOCATED, detail=detail[:2000]
        )
        others = attempt.holdings.exclude(state=MemberState.ALLOCATED).exists()
        changes: dict[str, Any] = {
            "not_before": timezone.now() + timedelta(seconds=delay_s),
            "start_failures": F("start_failures") + 1,
            "detail": detail[:2000],
        }
        if not others and attempt.state == AttemptState.STARTING:
            changes["state"] = AttemptState.ALLOCATED
        Attempt.objects.filter(pk=attempt.pk, state=attempt.state).update(**changes)
        _tell(attempt, [])


def back_off_s(failures: int) -> float:
    """Seconds until the next try after so many failures in a row."""
    return float(min(BACK_OFF_S * 2 ** min(failures, 16), MOST_BACK_OFF_S))


def member_started(*, holding_id: int, at: datetime) -> bool:
    """The node says that a member runs; with the last member the task runs."""
    with transaction.atomic():
        holding = Holding.objects.get(pk=holding_id)
        attempt = _locked(holding.attempt_id)
        if attempt.state not in LIVE_ATTEMPT_STATES:
            return False
        started = Holding.objects.filter(
            pk=holding_id, state__in=[MemberState.ALLOCATED, MemberState.STARTING]
        ).update(state=MemberState.RUNNING, started_at=at, detail="")
        waits = attempt.holdings.filter(
            state__in=[MemberState.ALLOCATED, MemberState.STARTING]
        ).exists()
        if not started or waits:
            return bool(started)
        _run(attempt, at)
        return True


def _run(attempt: Attempt, at: datetime) -> None:
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
        ).update(state=TaskState.RUNNING, changed_at=timezone.now(), state_detail="")
        _tell(attempt, [_entry(attempt, "task.running")] if moved else [])
    elif attempt.started_at is None:
        Attempt.objects.filter(pk=attempt.pk).update(started_at=at)


def member_exited(*, holding_id: int, ended: Ended) -> bool:
    """The node says that a member ended; with the last one the attempt ends.

    A member that fails takes the others of its gang with it: they are asked to stop.
    """
    with transaction.atomic():
        holding = Holding.objects.get(pk=holding_id)
        attempt = _locked(holding.attempt_id)
        at = ended.at or timezone.now()
        changed = (
            Holding.objects.filter(pk=holding_id)
            .exclude(state=MemberState.EXITED)
            .update(
                state=MemberState.EXITED,
                ended_at=at,
                exit_code=ended.exit_code,
                detail=ended.detail[:2000],
                is_stop_asked=ended.is_stop_asked and attempt.stop_asked_at is not None,
            )
        )
        if not changed or attempt.state not in LIVE_ATTEMPT_STATES:
            return False
        if attempt.holdings.exclude(state=MemberState.EXITED).exists():
            if ended.exit_code != 0:
                _stop_others(attempt, holding, ended)
            return True
        _finish(attempt, at, is_lost=ended.is_lost)
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
    _ask_to_stop(attempt, target=target, words=words)


def _ask_to_stop(attempt: Attempt, *, target: str, words: str) -> None:
    Attempt.objects.filter(pk=attempt.pk, state=attempt.state).update(
        state=AttemptState.STOPPING,
        stop_asked_at=timezone.now(),
        stop_target=target,
        stop_detail=words[:500],
    )
    Task.objects.filter(
        pk=attempt.task_id,
        generation=attempt.generation,
        state__in=[TaskState.ALLOCATED, TaskState.RUNNING],
    ).update(state=TaskState.STOPPING, changed_at=timezone.now(), state_detail=words[:2000])
    _tell(attempt, [_entry(attempt, "task.stopping", reason=words)])
    after_commit(tasks=["execution.look"])


def _finish(attempt: Attempt, at: datetime, *, is_lost: bool = False) -> None:
    """End the attempt, release what it held, and move the task on, all at once.

    Its own victims, where some still stop, stop from now on for whom it stops itself.
    """
    attempt.refresh_from_db()
    worst = _worst(attempt)
    Attempt.objects.filter(pk=attempt.pk, state=attempt.state).update(
        state=AttemptState.LOST if is_lost else AttemptState.FINISHED,
        ended_at=at,
        exit_code=worst.exit_code,
        detail=worst.detail[:2000],
    )
    Holding.objects.filter(attempt=attempt, released_at__isnull=True).update(released_at=at)
    HeldDevice.objects.filter(holding__attempt=attempt, released_at__isnull=True).update(
        released_at=at
    )
    victims = Attempt.objects.filter(stops_for=attempt, state__in=LIVE_ATTEMPT_STATES)
    victims.update(stops_for=attempt.stops_for_id)
    task = Task.objects.select_for_update().get(pk=attempt.task_id)
    if task.generation == attempt.generation and task.state in HOLDING_STATES:
        _move_on(task, attempt, Ended(worst.exit_code, worst.detail, at, is_lost))
    after_commit(tasks=["allocation.run_pass", "execution.look"])


def _worst(attempt: Attempt) -> Ended:
    """The result of a gang is that of its first member that did not end well."""
    members = list(attempt.holdings.order_by("rank").values_list("exit_code", "detail"))
    for code, detail in members:
        if code != 0:
            return Ended(exit_code=code, detail=detail)
    return Ended(exit_code=0)


def _move_on(task: Task, attempt: Attempt, ended: Ended) -> None:
    step = _next_step(task, attempt, ended)
    changes: dict[str, Any] = {
        "state": step.state,
        "state_detail": step.detail[:2000],
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
    _tell(attempt, [_entry(attempt, f"task.{step.state}", **data)])
    if step.state == TaskState.QUEUED:
        task_wait_again(attempt, at=timezone.now())


def _next_step(task: Task, attempt: Attempt, ended: Ended) -> _Next:
    is_stopped = attempt.state == AttemptState.STOPPING and attempt.stop_target
    if is_stopped and not _ended_by_itself(attempt):
        return _Next(TaskState(attempt.stop_target), attempt.stop_detail)
    if ended.is_lost:
        return _after_loss(task, attempt, ended.detail)
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
        attempt = _locked(attempt_id)
        if attempt.state not in LIVE_ATTEMPT_STATES or attempt.state == AttemptState.STOPPING:
            return False
        _ask_to_stop(attempt, target=target, words=detail)
        return True


def attempt_end_unstarted(*, attempt_id: UUID) -> bool:
    """End a stopping attempt of which no member was ever launched; no node has to be asked."""
    with transaction.atomic():
        attempt = _locked(attempt_id)
        started = attempt.holdings.exclude(state=MemberState.ALLOCATED).exists()
        if attempt.state != AttemptState.STOPPING or started:
            return False
        attempt.holdings.update(state=MemberState.EXITED, is_acknowledged=True)
        _finish(attempt, timezone.now())
        return True


def members_acknowledged(holding_ids: Iterable[int]) -> None:
    """The node has heard that the results are stored; it may drop its files."""
    Holding.objects.filter(pk__in=list(holding_ids), state=MemberState.EXITED).update(
        is_acknowledged=True
    )


def _locked(attempt_id: UUID) -> Attempt:
    """The attempt, held against every other writer until the transaction ends.

    Others may still refer to it: attempts that end at the same moment wait for one another's room.
    """
    return Attempt.objects.select_for_update(no_key=True).get(pk=attempt_id)


def _entry(attempt: Attempt, kind: str, **data: Any) -> Entry:
    return Entry(
        kind=kind,
        object_type="task",
        object_id=attempt.task_id,
        queue_id=attempt.queue_id,
        policy_id=attempt.policy_id,
        data={"generation": attempt.generation, "pool": attempt.pool_id, **data},
    )


def _tell(attempt: Attempt, entries: list[Entry]) -> None:
    events_record(
        entries,
        topics=task_topics(
            attempt.task_id,
            queue_id=attempt.queue_id,
            policy_id=attempt.policy_id,
            pool_id=attempt.pool_id,
        ),
    )
