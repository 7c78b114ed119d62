"""Would this task run now? One simulated pass, with one more task at the end of its queue."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.engine import decide
from apps.allocation.engine.model.plan import Placement, Plan
from apps.allocation.engine.model.reasons import to_data
from apps.allocation.engine.model.snapshot import Id, QueuedGroup, QueuedTask, Snapshot
from apps.allocation.explanation import (
    SUSPENDED,
    ReaderNames,
    ReasonPayload,
    reason_payloads,
    reasons_now,
)
from apps.allocation.loader import LoadedSnapshot, load
from apps.allocation.loader.configuration import amounts
from apps.allocation.loader.texts import microseconds
from apps.core.errors import Conflict
from apps.nodes.selectors import is_suspended
from apps.tasks.models import Task, TaskGroup
from apps.tasks.selectors.eligibility import ELIGIBLE
from apps.tasks.selectors.queue_order import (
    FAR,
    QueueExplanation,
    queue_explanation,
    queue_position,
)
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.task_spec import TaskSpec


@dataclass(frozen=True, slots=True)
class TaskCheck:
    """What the next pass would do with the task; names are those that the user may read.

    Where it would run, `pool`, `nodes` (of a pool that the user sees) and `tier` say how, and
    `stops` counts the tasks that have to stop for it first, `stopped` being the names of those
    that the user sees; where some are of another tenant, those are not counted. Otherwise
    `reasons` say why not. `ahead` are the waiting tasks of the queue that come first.
    """

    would_run: bool
    sentence: str
    ahead: int
    pool: str = ""
    nodes: tuple[str, ...] = ()
    tier: str = ""
    stops: int = 0
    stopped: tuple[str, ...] = ()
    reasons: tuple[ReasonPayload, ...] = ()

    @property
    def position(self) -> int:
        """In its queue, from 1."""
        return self.ahead + 1


@dataclass(frozen=True, slots=True)
class _TriedTask:
    """A task and its group as they would be stored, and how many wait before it.

    `reasons` say why passes would leave it out.
    """

    task: Task
    group: TaskGroup | None
    ahead: int
    equals: int
    reasons: tuple[Mapping[str, Any], ...] = ()


def task_check(*, actor: User, spec: TaskSpec) -> TaskCheck:
    """Whether the task would run if it were enqueued now; nothing is stored.

    Raises:
        Everything that `task_submit` raises: what cannot be enqueued cannot be checked.
    """
    tried = _try(actor, spec)
    if is_suspended():
        return _not_now(tried, (SUSPENDED,))
    now = timezone.now()
    if tried.reasons:
        names = ReaderNames.of(actor, tried.task, tried.reasons)
        return _not_now(tried, reason_payloads(tried.reasons, names, now=now))
    snapshot, index = _with(load(now_us=microseconds(now)), tried)
    plan = decide(snapshot)
    placement = next((one for one in plan.placed if one.task == str(tried.task.pk)), None)
    if placement is not None:
        return _placed(actor, tried, snapshot, placement)
    reasons = _reasons(plan, index, tried)
    names = ReaderNames.of(actor, tried.task, reasons)
    return _not_now(tried, reason_payloads(reasons, names, now=now))


def _not_now(tried: _TriedTask, reasons: tuple[ReasonPayload, ...]) -> TaskCheck:
    return TaskCheck(
        would_run=False, sentence=reasons[0].sentence, ahead=tried.ahead, reasons=reasons
    )


def _try(actor: User, spec: TaskSpec) -> _TriedTask:
    """Enqueue it, read the result, and undo: so the code that enqueues it judges it."""
    with transaction.atomic():
        task = task_submit(actor=actor, spec=spec)
        ahead = queue_position(task) - 1
        equals = Task.objects.filter(ELIGIBLE, task_group=task.task_group_id).exclude(pk=task.pk)
        found = queue_explanation(task) if task.ineligible_code else None
        reasons = tuple(found.reasons) if found is not None else ()
        tried = _TriedTask(task, task.task_group, ahead, equals.order_by()[:FAR].count(), reasons)
        transaction.set_rollback(True)
    return tried


def _with(loaded: LoadedSnapshot, tried: _TriedTask) -> tuple[Snapshot, int]:
    """The snapshot with the task in it, and the place of its group there.

    Raises:
        Conflict: its queue was closed meanwhile.
    """
    snapshot, task = loaded.snapshot, tried.task
    head = QueuedTask(microseconds(task.submitted_at), str(task.pk))
    if task.task_group_id in loaded.group_ids:
        index = loaded.group_ids.index(task.task_group_id)
        group = snapshot.queued_groups[index]
        # The heads are all that could start: a task behind one that is no head waits.
        heads = (*group.heads, head) if tried.equals <= len(group.heads) else group.heads
        group = replace(group, heads=heads, count=max(tried.equals, len(group.heads)) + 1)
    else:
        index = len(snapshot.queued_groups)
        group = _new_queued_group(snapshot, tried, head)
    queued_groups = (*snapshot.queued_groups[:index], group, *snapshot.queued_groups[index + 1 :])
    return replace(snapshot, queued_groups=queued_groups), index


def _new_queued_group(snapshot: Snapshot, tried: _TriedTask, head: QueuedTask) -> QueuedGroup:
    queue = next((one for one in snapshot.queues if one.id == tried.task.queue_id), None)
    row = tried.group
    if queue is None or row is None:
        raise Conflict("The queue was closed just now.", fields={"queue": "was closed"})
    profile = next(one for one in snapshot.profiles if one.id == queue.profile)
    return QueuedGroup(
        queue=queue.id,
        request=profile.request if row.request is None else amounts(row.request),
        count=1,
        heads=(head,),
        replicas=row.replicas or profile.replicas,
        priority=row.priority,
        is_preemptible=row.is_preemptible,
        user=row.user_id,
        can_exceed_limit=row.exceeds_limit,
    )


def _reasons(plan: Plan, index: int, tried: _TriedTask) -> list[Mapping[str, Any]]:
    wait = next(one for one in plan.waiting if one.index == index)
    stored = [to_data(reason) for reason in wait.reasons]
    is_first = wait.tasks[:1] == (str(tried.task.pk),)
    known = QueueExplanation("", stored, tried.ahead + 1, is_first=is_first)
    return list(reasons_now(tried.task.queue_id, known))


def _placed(actor: User, tried: _TriedTask, snapshot: Snapshot, placement: Placement) -> TaskCheck:
    stops = {"details": [{"tasks": [str(one) for one in placement.waits_for]}]}
    names = ReaderNames.of(actor, tried.task, [stops])
    pool = names.pool(placement.pool)
    stopped = tuple(names.task(one) for one in map(str, placement.waits_for) if one in names.tasks)
    how = placement.tier.value.replace("_", " ")
    is_vague = any(map(names.is_other_tenants_task, placement.waits_for))
    sentence = f"It would start now in {pool} ({how})."
    if placement.waits_for:
        count = len(placement.waits_for)
        who = "1 task there has" if count == 1 else f"{count} tasks there have"
        who = "work there has" if is_vague else who
        sentence = f"It would start in {pool} ({how}) once {who} stopped."
    return TaskCheck(
        would_run=True,
        sentence=sentence,
        ahead=tried.ahead,
        pool=pool,
        nodes=_nodes(snapshot, placement) if placement.pool in names.pools else (),
        tier=placement.tier.value,
        stops=len(stopped) if is_vague else len(placement.waits_for),
        stopped=stopped,
    )


def _nodes(snapshot: Snapshot, placement: Placement) -> tuple[str, ...]:
    """Of its members, each once."""
    known: dict[Id, str] = {
        node.id: node.name
        for pool in snapshot.pools
        if pool.id == placement.pool
        for node in pool.nodes
    }
    return tuple(dict.fromkeys(known[member.node] for member in placement.members))
