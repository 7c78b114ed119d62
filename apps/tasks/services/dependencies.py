"""Dependencies: waiting tasks that start after other tasks have ended as needed."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Count
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import BadInput, Conflict, NotFound
from apps.core.notifications import NOTIFY_ALLOCATION, after_commit
from apps.events.services import NewEvent, events_record
from apps.tasks.lifecycle.states import ENDED_STATES, LIVE_STATES, Ineligibility, TaskState
from apps.tasks.lifecycle.transitions import REJECT
from apps.tasks.lifecycle.writers import BATCH, tasks_lock_and_transition
from apps.tasks.models import ReasonChange, Task, TaskDependency
from apps.tasks.models.dependencies import UNSETTLED, DependencyKind, DependencyOutcome, outcome_of
from apps.tasks.selectors.dependencies import HAS_LIVE_ELEMENTS
from apps.tasks.selectors.visibility import tasks_visible_to
from apps.tasks.services.queues import check_can_manage_task
from apps.tasks.task_spec import AFTER, TaskSpec
from apps.tasks.topics import task_topics

# Tasks that wait for one task, and tasks that a search for a cycle goes through.
MOST_DEPENDENTS = 10_000
# Of these, tasks of users other than the owner of the task, who would have none left otherwise.
MOST_OF_OTHERS = 5000
MOST_SEARCHED = 10_000
# Of tasks that wait for one another in a row; each costs the search a query.
MOST_STEPS = 100
# Any number that nothing else in this database uses.
GRAPH_LOCK = 7_170_004
# Rejected tasks may be what others wait for: each round of a pass goes one further. The pass waits
# for these tasks; the next one continues.
ROUNDS = 20
SETTLED_AT_ONCE = 2000
UNSEEN = "is no task that you see"
UNMET = "A task that it waits for ended in another way than it needs."


@dataclass(frozen=True, slots=True)
class Dependency:
    """The task `task` has to end as `when` says."""

    task: UUID
    when: DependencyKind = DependencyKind.OK


@dataclass(slots=True)
class OtherTasks:
    """Tasks that a user sees and that tasks of `owner_id` are to wait for, and how many do.

    They are locked, so that none of them ends before the commit.
    """

    owner_id: int
    locked: dict[UUID, Task] = field(default_factory=dict)
    dependents: Counter[UUID] = field(default_factory=Counter)

    def take(self, waiting: Collection[UUID]) -> None:
        """Count one more task that waits for these.

        Raises:
            Conflict: too many wait for one of them.
        """
        for pk in waiting:
            other = self.locked[pk]
            is_own = other.owner_id == self.owner_id
            most = MOST_DEPENDENTS if is_own else MOST_OF_OTHERS
            if self.dependents[pk] >= most:
                rest = "" if is_own else ": only tasks of its owner may be more"
                raise Conflict(f"{other.name} has {most} tasks that wait for it{rest}.")
        self.dependents.update(waiting)


def graph_lock(specs: Iterable[TaskSpec]) -> None:
    """The first lock of a transaction that stores new tasks, where one waits for others."""
    if any(spec.after for spec in specs):
        _lock_graph()


def others_lock(actor: User, specs: Iterable[TaskSpec]) -> OtherTasks:
    """Lock what new tasks wait for, behind the lock of the graph and those of the queues."""
    wanted = {one.task for spec in specs for one in spec.after}
    if not wanted:
        return OtherTasks(actor.pk)
    seen = list(tasks_visible_to(actor).filter(pk__in=wanted).values_list("pk", flat=True))
    rows = Task.objects.select_for_update(no_key=True).filter(pk__in=seen).order_by("pk")
    return OtherTasks(actor.pk, {row.pk: row for row in rows}, _dependents(seen))


def new_dependencies(task: Task, spec: TaskSpec, others: OtherTasks) -> list[TaskDependency]:
    """What a task that is not stored yet waits for; without any, passes consider it at once.

    Raises:
        BadInput: as `task_set_dependencies`.
        Conflict: too many tasks wait for another one.
    """
    after = [Dependency(one.task, DependencyKind(one.when)) for one in spec.after]
    _refuse(after, {one.task for one in after} - others.locked.keys(), UNSEEN)
    edges = _edges(task, after, others.locked)
    waiting = _waiting(edges)
    others.take(waiting)
    if waiting and not task.is_held:
        task.ineligible_code = Ineligibility.DEPENDENCY.value
    return edges


@transaction.atomic
def task_set_dependencies(*, actor: User, task: Task, after: Sequence[Dependency]) -> Task:
    """Let a waiting task start after others only; replaces what it waited for so far.

    Args:
        after: at most `AFTER`, in any state but draft; empty: it waits for none any more.

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
    _refuse(after, set(wanted) - visible, UNSEEN)
    # All at once in the order of ids; with the lock, none of them ends before the commit.
    rows = Task.objects.select_for_update(no_key=True).filter(pk__in=[*wanted, task.pk])
    locked = {row.pk: row for row in rows.order_by("pk")}
    # Ended tasks and drafts may be removed at any time.
    _refuse(after, wanted.keys() - locked.keys(), UNSEEN)
    row = locked.pop(task.pk, None)
    if row is None:
        raise NotFound("This task was removed meanwhile.")
    check_can_manage_task(actor, row)
    if row.state != TaskState.QUEUED:
        raise Conflict("Only waiting tasks can wait for others.")
    if row.array_next:
        raise Conflict("Elements of this array are waiting or running already.")
    if row.array_id is not None:
        raise Conflict("Elements do not wait for other tasks: their array does, as a whole.")
    edges = _edges(row, after, locked)
    TaskDependency.objects.filter(task=row).delete()
    waiting = _waiting(edges)
    _refuse(after, _leading_to(row.pk, waiting), "waits for this task")
    OtherTasks(row.owner_id, locked, _dependents(waiting)).take(waiting)
    TaskDependency.objects.bulk_create(edges)
    _write(actor, row, is_waiting=bool(waiting), count=len(edges))
    task.refresh_from_db()
    return task


def _check(after: Sequence[Dependency], task: Task) -> None:
    if len(after) > AFTER:
        problem = f"has {len(after)} entries: at most {AFTER}"
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
    aborted = [pk for pk, one in locked.items() if one.array_count and one.state in ENDED_STATES]
    ending = _with_live_elements(aborted)
    edges = [
        TaskDependency(
            task=row,
            after=locked[one.task],
            when=one.when,
            outcome=outcome_of(one.when, locked[one.task].state),
            is_due=one.task in ending,
        )
        for one in after
    ]
    unmet = {one.after_id for one in edges if one.outcome == DependencyOutcome.UNMET}
    _refuse(after, unmet, "has ended in another way already")
    return edges


def _with_live_elements(arrays: Collection[UUID]) -> set[UUID]:
    """Those of which an element has not ended."""
    if not arrays:
        return set()
    live = Task.objects.filter(array__in=arrays, state__in=LIVE_STATES).order_by()
    return {pk for pk in live.values_list("array", flat=True).distinct() if pk is not None}


def _waiting(edges: Iterable[TaskDependency]) -> list[UUID]:
    """The other tasks that have not ended, or of which an element has not."""
    waits = DependencyOutcome.WAITING
    return [one.after_id for one in edges if one.outcome == waits or one.is_due]


def _dependents(tasks: Collection[UUID]) -> Counter[UUID]:
    """How many tasks wait for each of these, or did."""
    rows = TaskDependency.objects.filter(after__in=tasks).order_by().values("after")
    return Counter(dict(rows.annotate(Count("pk")).values_list("after", "pk__count")))


def _leading_to(task: UUID, after: Collection[UUID]) -> set[UUID]:
    """Those of `after` that wait for the task themselves, directly or through others."""
    found = {task}
    frontier = {task} if after else set[UUID]()
    wanted = set(after)
    steps = 0
    while frontier and steps < MOST_STEPS and len(found) <= MOST_SEARCHED:
        steps += 1
        # From the task to what waits for it, which are few where it is new.
        rows = TaskDependency.objects.filter(
            after__in=frontier, outcome=DependencyOutcome.WAITING, task__state=TaskState.QUEUED
        )
        frontier = set(rows.values_list("task", flat=True)[:MOST_SEARCHED]) - found
        found |= frontier
    if frontier:
        raise Conflict(f"Too many tasks wait for this one: at most {MOST_STEPS} after each other.")
    return wanted & found


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
    left = SETTLED_AT_ONCE
    for _ in range(ROUNDS):
        due = TaskDependency.objects.filter(~HAS_LIVE_ELEMENTS, is_due=True).order_by("pk")
        tasks = set(due.values_list("task", flat=True)[: min(BATCH, left)])
        if not tasks:
            return
        left -= len(tasks)
        # An array that was released stores its elements before the next pass.
        after_commit(notify=[NOTIFY_ALLOCATION])
        if not _settle(tasks, now):
            return


def _settle(tasks: Collection[UUID], now: datetime) -> bool:
    """Whether any of these tasks could be dealt with."""
    rows = Task.objects.filter(pk__in=tasks, state=TaskState.QUEUED)
    locked = dict(
        rows.select_for_update(skip_locked=True, no_key=True)
        .order_by("pk")
        .values_list("pk", "ineligible_code")
    )
    due = TaskDependency.objects.filter(task__in=tasks, is_due=True)
    edges = [
        (pk, task, DependencyOutcome.WAITING if is_ending else outcome)
        for pk, task, outcome, is_ending in TaskDependency.objects.filter(
            UNSETTLED, task__in=locked
        )
        .annotate(is_ending=HAS_LIVE_ELEMENTS)
        .values_list("pk", "task", "outcome", "is_ending")
    ]
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
