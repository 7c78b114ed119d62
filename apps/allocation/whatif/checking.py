"""Would this task run now? One pass on paper, with one more task at the end of its line."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.engine import decide
from apps.allocation.engine.plan import Place, Plan, Standing
from apps.allocation.engine.reasons import to_data
from apps.allocation.engine.snapshot import Head, Id, Run, Snapshot
from apps.allocation.explaining import SUSPENDED, Names, Told, is_suspended, reasons_now, tell_all
from apps.allocation.loader import Loaded, load
from apps.allocation.loader.configuration import amounts
from apps.allocation.loader.texts import microseconds
from apps.core.errors import Conflict
from apps.tasks.descriptions import Description
from apps.tasks.models import Run as RunRow
from apps.tasks.models import Task
from apps.tasks.selectors.waiting import FAR, Explanation, place_in_line
from apps.tasks.services import task_submit
from apps.tasks.states import TaskState

_STANDINGS = {
    Standing.RESERVED: "within the reservation",
    Standing.LENT: "on the department's reservation",
    Standing.OVER_QUOTA: "over quota",
}


@dataclass(frozen=True, slots=True)
class Checked:
    """What the next pass would do with the task; names are those that the asker may read.

    Where it would run, `pool`, `nodes` (of a pool that the asker sees) and `standing` say how, and
    `stops` counts the tasks that have to stop for it first, `stopped` being the names of those
    that the asker sees; where some are of another organisation, those are not counted. Otherwise
    `reasons` say why not. `ahead` are the waiting tasks of the queue that come first.
    """

    would_run: bool
    sentence: str
    ahead: int
    pool: str = ""
    nodes: tuple[str, ...] = ()
    standing: str = ""
    stops: int = 0
    stopped: tuple[str, ...] = ()
    reasons: tuple[Told, ...] = ()

    @property
    def place(self) -> int:
        """In its queue, from 1."""
        return self.ahead + 1


@dataclass(frozen=True, slots=True)
class _Tried:
    """A task and its run as they would be stored, and how many wait before it."""

    task: Task
    run: RunRow | None
    ahead: int
    equals: int


def task_check(*, actor: User, description: Description) -> Checked:
    """Whether the task would run if it were enqueued now; nothing is stored.

    Raises:
        Everything that `task_submit` raises: what cannot be enqueued cannot be checked.
    """
    tried = _try(actor, description)
    if is_suspended():
        return _not_now(tried, (SUSPENDED,))
    now = timezone.now()
    snapshot, index = _with(load(now_us=microseconds(now)), tried)
    plan = decide(snapshot)
    place = next((one for one in plan.placed if one.task == str(tried.task.pk)), None)
    if place is not None:
        return _placed(actor, tried, snapshot, place)
    reasons = _reasons(plan, index, tried)
    names = Names.of(actor, tried.task, reasons)
    return _not_now(tried, tell_all(reasons, names, now=now))


def _not_now(tried: _Tried, told: tuple[Told, ...]) -> Checked:
    return Checked(would_run=False, sentence=told[0].sentence, ahead=tried.ahead, reasons=told)


def _try(actor: User, description: Description) -> _Tried:
    """Enqueue it, look, and undo: so it is judged by the very code that will judge it."""
    with transaction.atomic():
        task = task_submit(actor=actor, description=description)
        ahead = place_in_line(task) - 1
        equals = Task.objects.filter(run=task.run_id, state=TaskState.QUEUED).exclude(pk=task.pk)
        tried = _Tried(task, task.run, ahead, equals.order_by()[:FAR].count())
        transaction.set_rollback(True)
    return tried


def _with(loaded: Loaded, tried: _Tried) -> tuple[Snapshot, int]:
    """The snapshot with the task in it, and the place of its run there.

    Raises:
        Conflict: its queue was closed meanwhile.
    """
    snapshot, task = loaded.snapshot, tried.task
    head = Head(microseconds(task.submitted_at), str(task.pk))
    if task.run_id in loaded.run_ids:
        index = loaded.run_ids.index(task.run_id)
        run = snapshot.runs[index]
        # The heads are all that could start: whoever stands behind one that is no head waits.
        heads = (*run.heads, head) if tried.equals <= len(run.heads) else run.heads
        run = replace(run, heads=heads, count=max(tried.equals, len(run.heads)) + 1)
    else:
        index = len(snapshot.runs)
        run = _new_run(snapshot, tried, head)
    runs = (*snapshot.runs[:index], run, *snapshot.runs[index + 1 :])
    return replace(snapshot, runs=runs), index


def _new_run(snapshot: Snapshot, tried: _Tried, head: Head) -> Run:
    queue = next((one for one in snapshot.queues if one.id == tried.task.queue_id), None)
    row = tried.run
    if queue is None or row is None:
        raise Conflict("The queue was closed just now.", fields={"queue": "was closed"})
    profile = next(one for one in snapshot.profiles if one.id == queue.profile)
    return Run(
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


def _reasons(plan: Plan, index: int, tried: _Tried) -> list[Mapping[str, Any]]:
    wait = next(one for one in plan.waiting if one.run == index)
    stored = [to_data(reason) for reason in wait.reasons]
    is_first = wait.tasks[:1] == (str(tried.task.pk),)
    known = Explanation("", stored, tried.ahead + 1, is_first=is_first)
    return list(reasons_now(tried.task.queue_id, known))


def _placed(actor: User, tried: _Tried, snapshot: Snapshot, place: Place) -> Checked:
    stops = {"details": [{"tasks": [str(one) for one in place.waits_for]}]}
    names = Names.of(actor, tried.task, [stops])
    pool = names.pool(place.pool)
    stopped = tuple(names.task(one) for one in map(str, place.waits_for) if one in names.tasks)
    how = _STANDINGS[place.standing]
    is_vague = any(map(names.is_strange_task, place.waits_for))
    sentence = f"It would start now in {pool}, {how}."
    if place.waits_for:
        count = len(place.waits_for)
        who = "1 task there has" if count == 1 else f"{count} tasks there have"
        who = "work there has" if is_vague else who
        sentence = f"It would start in {pool}, {how}, once {who} stopped to make room."
    return Checked(
        would_run=True,
        sentence=sentence,
        ahead=tried.ahead,
        pool=pool,
        nodes=_nodes(snapshot, place) if place.pool in names.pools else (),
        standing=place.standing.value,
        stops=len(stopped) if is_vague else len(place.waits_for),
        stopped=stopped,
    )


def _nodes(snapshot: Snapshot, place: Place) -> tuple[str, ...]:
    """Of its members, each once."""
    known: dict[Id, str] = {
        node.id: node.name
        for pool in snapshot.pools
        if pool.id == place.pool
        for node in pool.nodes
    }
    return tuple(dict.fromkeys(known[member.node] for member in place.members))
