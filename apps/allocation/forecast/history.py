"""What expected starts go by, read from the database: who waits, run times, limits, arrivals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from django.db.models import Q

from apps.allocation.engine.quantities import Quantities
from apps.allocation.engine.snapshot import Id, Snapshot
from apps.allocation.forecast.arrivals import SPAN_US, Arrivals
from apps.allocation.forecast.estimating import Estimate, NoEstimate, Why, expected_start
from apps.allocation.forecast.forward import MOST_UNSEEN
from apps.allocation.forecast.lengths import SECOND, Lengths
from apps.allocation.forecast.world import Kind
from apps.allocation.loader import Loaded, load
from apps.allocation.loader.running import microseconds
from apps.allocation.loader.waiting import _heads as read_heads
from apps.tasks.models import Attempt, Task
from apps.tasks.states import LIVE_ATTEMPT_STATES, AttemptState, TaskState

# The last attempts that are looked at, of all queues; and of the waiting tasks, those that are
# looked at in all, and whose time limits are.
LAST_ATTEMPTS = 2_000
MOST_WAITING = 10_000
FIRST_WAITING = 1_000


def expected_start_of(task: Task, *, now_us: int) -> Estimate | NoEstimate:
    """When a waiting task will probably start, from the state of this moment.

    Takes some tenths of a second, more in large installations: ask where somebody looks, never
    for a list. The number of queries is fixed.

    Args:
        now_us: microseconds since the epoch.
    """
    loaded = load(now_us=now_us)
    is_waiting = task.state == TaskState.QUEUED and task.submitted_at is not None
    if not is_waiting or task.run_id is None or task.run_id not in loaded.run_ids:
        return NoEstimate(Why.NOT_IN_SIGHT)
    index = loaded.run_ids.index(task.run_id)
    place = 1 + _ahead(task, task.run_id)
    if place > MOST_UNSEEN:
        return NoEstimate(Why.NOT_IN_SIGHT)
    snapshot = _with_more_heads(loaded, index, place)
    lengths, arrivals = load_lengths(snapshot)
    return expected_start(
        snapshot, task=str(task.pk), lengths=lengths, arrivals=arrivals, behind=(index, place)
    )


def _ahead(task: Task, run: int) -> int:
    """How many of its run come first."""
    earlier = Q(submitted_at__lt=task.submitted_at) | Q(
        submitted_at=task.submitted_at, id__lt=task.pk
    )
    waiting = Task.objects.filter(earlier, run_id=run, state=TaskState.QUEUED)
    return len(waiting.values_list("pk")[: MOST_UNSEEN + 1])


def _with_more_heads(loaded: Loaded, index: int, place: int) -> Snapshot:
    """A pass looks only at what could start at once; a forecast at what comes after that too.

    The run at `index` counts at least `place` tasks.
    """
    snapshot = loaded.snapshot
    each = max(MOST_WAITING // len(snapshot.runs), 1)
    most = {
        pk: max(each, len(run.heads)) for pk, run in zip(loaded.run_ids, snapshot.runs, strict=True)
    }
    found = read_heads(most)
    runs = []
    for at, (pk, run) in enumerate(zip(loaded.run_ids, snapshot.runs, strict=True)):
        heads = tuple(found.get(pk, run.heads))
        count = max(len(heads), place if at == index else 0)
        runs.append(replace(run, heads=heads, count=count))
    return replace(snapshot, runs=tuple(runs))


def load_lengths(snapshot: Snapshot) -> tuple[Lengths, Arrivals]:
    """What is known for a forecast from `snapshot`. Three queries, whatever has run before."""
    rows = _last_attempts()
    lengths = Lengths(
        limits=_limits(snapshot),
        by_queue=_by_queue(rows),
        overall=sorted(length for row in rows if (length := _length_us(row)) is not None),
    )
    return lengths, _arrivals(snapshot, rows)


def _last_attempts() -> list[Any]:
    """Newest first, by the time in their ids."""
    rows = Attempt.objects.order_by("-id").values(
        "queue_id",
        "state",
        "started_at",
        "ended_at",
        "is_preempted",
        "generation",
        "request",
        "replicas",
        "task__submitted_at",
        "task__priority",
        "task__is_preemptible",
        "task__run__user_id",
        "task__run__exceeds_limit",
    )
    return list(rows[:LAST_ATTEMPTS])


def _by_queue(rows: Iterable[Any]) -> dict[Id, list[int]]:
    found: dict[Id, list[int]] = defaultdict(list)
    for row in rows:
        length = _length_us(row)
        if length is not None:
            found[row["queue_id"]].append(length)
    for lengths in found.values():
        lengths.sort()
    return found


def _length_us(row: Any) -> int | None:
    """How long an attempt ran that ended by itself, well or badly; None of any other."""
    if row["state"] != AttemptState.FINISHED or row["is_preempted"]:
        return None
    if row["started_at"] is None or row["ended_at"] is None:
        return None
    return max(microseconds(row["ended_at"]) - microseconds(row["started_at"]), 0)


def _limits(snapshot: Snapshot) -> Mapping[Id, int]:
    """Of everything that runs, and of the first waiting tasks."""
    heads = (head.task for run in snapshot.runs for head in run.heads)
    limited = {"time_limit_s__isnull": False}
    running = Attempt.objects.filter(
        state__in=LIVE_ATTEMPT_STATES, task__time_limit_s__isnull=False
    ).values_list("task_id", "task__time_limit_s")
    waiting = Task.objects.filter(pk__in=list(islice(heads, FIRST_WAITING)), **limited)
    rows = [*running, *waiting.values_list("pk", "time_limit_s")]
    return {str(task): limit_s * SECOND for task, limit_s in rows if limit_s is not None}


def _arrivals(snapshot: Snapshot, rows: Iterable[Any]) -> Arrivals:
    """What was enqueued lately: what has been admitted since, and what still waits."""
    begin = snapshot.now_us - SPAN_US
    queues = {queue.id for queue in snapshot.queues}
    recent = [
        (submitted, kind)
        for submitted, kind in [*map(_arrival, rows), *_waiting(snapshot)]
        if begin < submitted <= snapshot.now_us and kind is not None and kind.queue in queues
    ]
    recent.sort(key=lambda one: one[0])
    return Arrivals(snapshot.now_us, SPAN_US, recent)


def _arrival(row: Any) -> tuple[int, Kind | None]:
    if row["generation"] > 1:
        return 0, None
    kind = Kind(
        queue=row["queue_id"],
        request=Quantities.of(row["request"]),
        replicas=row["replicas"],
        priority=row["task__priority"],
        is_preemptible=row["task__is_preemptible"],
        user=row["task__run__user_id"],
        can_exceed_limit=bool(row["task__run__exceeds_limit"]),
    )
    return microseconds(row["task__submitted_at"]), kind


def _waiting(snapshot: Snapshot) -> Iterable[tuple[int, Kind]]:
    for run in snapshot.runs:
        kind = Kind.of_run(run)
        for head in run.heads:
            yield head.submitted_us, kind
