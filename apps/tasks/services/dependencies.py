"""Dependencies: waiting tasks that start after other tasks have ended as needed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import BadInput, Conflict
from apps.core.notifications import NOTIFY_ALLOCATION, after_commit
from apps.events.services import NewEvent, events_record
from apps.tasks.lifecycle.states import Ineligibility, TaskState
from apps.tasks.lifecycle.transitions import REJECT
from apps.tasks.lifecycle.writers import BATCH, tasks_lock_and_transition
from apps.tasks.models import ReasonChange, Task, TaskDependency
from apps.tasks.models.dependencies import DependencyKind, DependencyOutcome, outcome_of
from apps.tasks.selectors.visibility import tasks_visible_to
from apps.tasks.services.queues import check_can_manage_task
from apps.tasks.topics import task_topics

# Tasks that one task waits for, tasks that wait for one task, and tasks that a search for a
# cycle goes through.
MOST_AFTER = 64
MOST_DEPENDENTS = 10_000
MOST_SEARCHED = 10_000
# Any number that nothing else in this database uses.
GRAPH_LOCK = 7_170_004
# Rejected tasks may be what others wait for: the next pass continues.
ROUNDS = 20
UNMET = "A task that it waits for ended in another way than it needs."


@dataclass(frozen=True, slots=True)
class Dependency:
    """The task `task` has to end as `when` says."""

    task: UUID
    when: DependencyKind = DependencyKind.OK


@transaction.atomic
def task_set_dependencies(*, actor: User, task: Task, after: Sequence[Dependency]) -> Task:
    """Let a waiting task start after others only; replaces what it waited for so far.

    Args:
        after: at most `MOST_AFTER`, in any state but draft; empty: it waits for none any more.

    Raises:
        NotAllowed: the actor neither owns the task nor manages its queue.
        BadInput: another task is unknown, invisible, a draft, the task itself, waits for this one,
            or can never end as needed; `fields` names it.
        Conflict: the task does not wait, or too many tasks wait for another one.
    """
    _check(after, task)
    _lock_graph()
    wanted = {one.task: one for one in after}
    visible = set(tasks_visible_to(actor).filter(pk__in=wanted).values_list("pk", flat=True))
    _refuse(after, set(wanted) - visible, "is no task that you see")
    # All at once in the order of ids; with the lock, none of them ends before the commit.
    rows = Task.objects.select_for_update(no_key=True).filter(pk__in=[*wanted, task.pk])
    locked = {row.pk: row for row in rows.order_by("pk")}
    row = locked.pop(task.pk)
    check_can_manage_task(actor, row)
    if row.state != TaskState.QUEUED:
        raise Conflict("Only waiting tasks can wait for others.")
    if row.array_next:
        raise Conflict("Elements of this array are waiting or running already.")
    edges = _edges(row, after, locked)
    TaskDependency.objects.filter(task=row).delete()
    TaskDependency.objects.bulk_create(edges)
    is_waiting = any(one.outcome == DependencyOutcome.WAITING for one in edges)
    _write(actor, row, is_waiting=is_waiting, count=len(edges))
    task.refresh_from_db()
    return task


def _check(after: Sequence[Dependency], task: Task) -> None:
    if len(after) > MOST_AFTER:
        problem = f"has {len(after)} entries: at most {MOST_AFTER}"
        raise BadInput(f"after {problem}.", fields={"after": problem})
    _refuse(after, {task.pk}, "is this task itself")
    seen: set[UUID] = set()
    for one in after:
        if one.task in seen:
            _refuse(after, {one.task}, "is named twice")
        seen.add(one.task)


def _refuse(after: Sequence[Dependency], bad: Collection[UUID], problem: str) -> None:
    fields = {f"after.{at}.task": problem for at, one in enumerate(after) if one.task in bad}
    if fields:
        raise BadInput(f"{next(iter(fields))} {problem}.", fields=fields)


def _lock_graph() -> None:
    """One change of dependencies at a time, so that two of them never make a cycle."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [GRAPH_LOCK])


def _edges(
    row: Task, after: Sequence[Dependency], locked: dict[UUID, Task]
) -> list[TaskDependency]:
    drafts = {pk for pk, one in locked.items() if one.state == TaskState.DRAFT}
    _refuse(after, drafts, "is a draft: enqueue it first")
    edges = [
        TaskDependency(
            task=row,
            after=locked[one.task],
            when=one.when,
            outcome=outcome_of(one.when, locked[one.task].state),
        )
        for one in after
    ]
    unmet = {one.after_id for one in edges if one.outcome == DependencyOutcome.UNMET}
    _refuse(after, unmet, "has ended in another way already")
    waiting = [one.after_id for one in edges if one.outcome == DependencyOutcome.WAITING]
    _refuse(after, _leading_to(row.pk, waiting), "waits for this task")
    for pk in waiting:
        dependents = TaskDependency.objects.filter(after=pk).exclude(task=row)
        if dependents.values("pk")[:MOST_DEPENDENTS].count() >= MOST_DEPENDENTS:
            raise Conflict(f"{locked[pk].name} has {MOST_DEPENDENTS} tasks that wait for it.")
    return edges


def _leading_to(task: UUID, after: Collection[UUID]) -> set[UUID]:
    """Those of `after` that wait for the task themselves, directly or through others."""
    found = {task}
    frontier = {task}
    wanted = set(after)
    while frontier and len(found) <= MOST_SEARCHED:
        # From the task to what waits for it, which are few where it is new.
        rows = TaskDependency.objects.filter(
            after__in=frontier, outcome=DependencyOutcome.WAITING, task__state=TaskState.QUEUED
        )
        frontier = set(rows.values_list("task", flat=True)[:MOST_SEARCHED]) - found
        found |= frontier
    return wanted if frontier else wanted & found


def _write(actor: User, row: Task, *, is_waiting: bool, count: int) -> None:
    row.changed_at = timezone.now()
    if not row.is_held:
        code = Ineligibility.DEPENDENCY.value if is_waiting else ""
        if code and row.ineligible_code != code:
            reasons = [{"code": code, "details": []}]
            data = {"reasons": reasons, "queue": row.queue_id}
            ReasonChange.objects.create(task=row, at=row.changed_at, code=code, data=data)
        row.ineligible_code = code
    row.save(update_fields=["ineligible_code", "changed_at"])
    policy_id = row.queue.policy_id if row.queue is not None else None
    entry = NewEvent(
        kind="task.dependencies",
        object_type="task",
        object_id=row.pk,
        queue_id=row.queue_id,
        policy_id=policy_id,
        actor_id=actor.pk,
        data={"count": count},
        is_audited=actor.pk != row.owner_id,
    )
    events_record([entry], topics=task_topics(row.pk, queue_id=row.queue_id, policy_id=policy_id))
    after_commit(notify=[NOTIFY_ALLOCATION])


def dependencies_settle(*, now: datetime) -> None:
    """Release tasks whose dependencies are all met, and reject those with one that never will be.

    Runs inside the transaction of a pass, which considers the released ones at once. Tasks that
    another transaction has locked are left to the next pass.
    """
    for _ in range(ROUNDS):
        due = TaskDependency.objects.filter(is_due=True).order_by("pk")
        tasks = set(due.values_list("task", flat=True)[:BATCH])
        if not tasks:
            return
        if not _settle(tasks, now):
            break
    after_commit(notify=[NOTIFY_ALLOCATION])


def _settle(tasks: Collection[UUID], now: datetime) -> bool:
    """Whether any of these tasks could be dealt with."""
    rows = Task.objects.filter(pk__in=tasks, state=TaskState.QUEUED)
    locked = dict(
        rows.select_for_update(skip_locked=True, no_key=True)
        .order_by("pk")
        .values_list("pk", "ineligible_code")
    )
    due = TaskDependency.objects.filter(task__in=tasks, is_due=True)
    edges = list(
        TaskDependency.objects.filter(Q(outcome=DependencyOutcome.WAITING) | Q(is_due=True))
        .filter(task__in=locked)
        .values_list("pk", "task", "outcome")
    )
    unmet = {task for _, task, outcome in edges if outcome == DependencyOutcome.UNMET}
    waiting = {task for _, task, outcome in edges if outcome == DependencyOutcome.WAITING}
    columns = {"state_detail": UNMET, "ineligible_code": ""}
    tasks_lock_and_transition(REJECT, unmet, columns=columns, data={"cause": "dependency"})
    free = [
        pk
        for pk, code in locked.items()
        if code == Ineligibility.DEPENDENCY and pk not in unmet | waiting
    ]
    Task.objects.filter(pk__in=free).update(ineligible_code="", changed_at=now)
    after_commit(topics=[f"task.{pk}" for pk in free])
    # A rejection above may have decided about further ones, which are the next round's.
    decided = [pk for pk, _, outcome in edges if outcome != DependencyOutcome.WAITING]
    done = due.filter(pk__in=decided).update(is_due=False)
    return bool(done + due.exclude(task__state=TaskState.QUEUED).update(is_due=False))
