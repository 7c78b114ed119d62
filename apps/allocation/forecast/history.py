"""The basis of expected starts, read from the database: run times, limits, arrivals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import Id, Snapshot
from apps.allocation.forecast.arrivals import SPAN_US, Arrivals
from apps.allocation.forecast.run_times import SECOND, RunTimes
from apps.allocation.loader.texts import microseconds
from apps.allocation.simulation.simulated_state import GroupKey
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES, AttemptState
from apps.tasks.models import Attempt, Task

# The last attempts that are used, of all queues; and of the waiting tasks the first, for
# their time limits.
LAST_ATTEMPTS = 2_000
FIRST_WAITING = 1_000


def load_run_times(snapshot: Snapshot) -> tuple[RunTimes, Arrivals]:
    """What is known for a forecast from `snapshot`. Three queries, whatever has run before."""
    rows = _last_attempts()
    run_times = RunTimes(
        limits=_limits(snapshot),
        by_queue=_by_queue(rows),
        overall=sorted(run_time for row in rows if (run_time := _length_us(row)) is not None),
    )
    return run_times, _arrivals(snapshot, rows)


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
        "task__task_group__user_id",
        "task__task_group__exceeds_limit",
    )
    return list(rows[:LAST_ATTEMPTS])


def _by_queue(rows: Iterable[Any]) -> dict[Id, list[int]]:
    found: dict[Id, list[int]] = defaultdict(list)
    for row in rows:
        run_time = _length_us(row)
        if run_time is not None:
            found[row["queue_id"]].append(run_time)
    for run_times in found.values():
        run_times.sort()
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
    heads = (head.task for queued in snapshot.queued_groups for head in queued.heads)
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
        (submitted, group_key)
        for submitted, group_key in [*map(_arrival, rows), *_waiting(snapshot)]
        if begin < submitted <= snapshot.now_us
        and group_key is not None
        and group_key.queue in queues
    ]
    recent.sort(key=lambda one: one[0])
    return Arrivals(snapshot.now_us, SPAN_US, recent)


def _arrival(row: Any) -> tuple[int, GroupKey | None]:
    if row["generation"] > 1:
        return 0, None
    group_key = GroupKey(
        queue=row["queue_id"],
        request=Quantities.of(row["request"]),
        replicas=row["replicas"],
        priority=row["task__priority"],
        is_preemptible=row["task__is_preemptible"],
        user=row["task__task_group__user_id"],
        can_exceed_limit=bool(row["task__task_group__exceeds_limit"]),
    )
    return microseconds(row["task__submitted_at"]), group_key


def _waiting(snapshot: Snapshot) -> Iterable[tuple[int, GroupKey]]:
    for queued in snapshot.queued_groups:
        group_key = GroupKey.of_queued(queued)
        for head in queued.heads:
            yield head.submitted_us, group_key
