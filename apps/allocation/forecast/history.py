"""What expected starts go by, read from the database: run times, limits, arrivals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from apps.allocation.engine.quantities import Quantities
from apps.allocation.engine.snapshot import Id, Snapshot
from apps.allocation.forecast.arrivals import SPAN_US, Arrivals
from apps.allocation.forecast.lengths import SECOND, Lengths
from apps.allocation.forecast.world import Kind
from apps.allocation.loader.texts import microseconds
from apps.tasks.models import Attempt, Task
from apps.tasks.states import LIVE_ATTEMPT_STATES, AttemptState

# The last attempts that are looked at, of all queues; and of the waiting tasks the first, for
# their time limits.
LAST_ATTEMPTS = 2_000
FIRST_WAITING = 1_000


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
