"""Waiting work: of every group only the tasks that could start now, never an array itself.

What is behind them waits for them whatever happens, so the cost of a pass follows what can
run and not what waits.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from django.db import connection

from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import QueuedGroup, QueuedTask, RunningGroup
from apps.allocation.loader.configuration import Configuration, amounts
from apps.allocation.loader.head_bounds import GroupDemand, HeadBounds
from apps.allocation.loader.texts import id_text, moment_us
from apps.tasks.models import TaskGroup
from apps.tasks.selectors.eligibility import ELIGIBLE_SQL

# One probe of the partial index per group, whatever waits behind.
_HEADS_POSTGRESQL = f"""
    SELECT wanted.task_group_id, head.id, head.submitted_at
    FROM unnest(%s::bigint[], %s::int[]) AS wanted (task_group_id, most)
    CROSS JOIN LATERAL (
        SELECT id, submitted_at FROM tasks_task
        WHERE task_group_id = wanted.task_group_id AND {ELIGIBLE_SQL}
        ORDER BY submitted_at, id LIMIT wanted.most
    ) AS head
"""  # noqa: S608  # no value of a user is in it
_HEADS_SQLITE = f"""
    SELECT task_group_id, id, submitted_at FROM (
        SELECT task_group_id, id, submitted_at, row_number() OVER (
            PARTITION BY task_group_id ORDER BY submitted_at, id
        ) AS place
        FROM tasks_task
        WHERE {ELIGIBLE_SQL}
    ) WHERE place <= %s
"""  # noqa: S608  # no value of a user is in it


def load_queued_groups(
    configuration: Configuration, running: tuple[RunningGroup, ...]
) -> list[tuple[int, QueuedGroup]]:
    """Groups with waiting tasks, each with the id of its row. Two queries."""
    profiles = {profile.id: profile for profile in configuration.profiles}
    queues = {queue.id: queue for queue in configuration.queues}
    bounds = HeadBounds(configuration, running)
    rows = [row for row in _rows() if row["queue_id"] in queues]
    shapes: dict[int, tuple[Quantities, int]] = {}
    most: dict[int, int] = {}
    for row in rows:
        queue = queues[row["queue_id"]]
        profile = profiles.get(queue.profile)
        if profile is None:
            continue
        request = amounts(row["request"]) if row["request"] is not None else profile.request
        replicas = row["replicas"] or profile.replicas
        shapes[row["id"]] = request, replicas
        most[row["id"]] = bounds.most(
            GroupDemand(
                profile=profile,
                policy=queue.policy,
                total=request.times(replicas),
                is_preemptible=row["is_preemptible"],
                skips_own_limit=row["exceeds_limit"],
            )
        )
    heads = _heads(most)
    return [
        (row["id"], _queued_group(row, *shapes[row["id"]], heads=heads[row["id"]]))
        for row in rows
        if heads.get(row["id"])
    ]


def _queued_group(
    row: Any, request: Quantities, replicas: int, *, heads: list[QueuedTask]
) -> QueuedGroup:
    return QueuedGroup(
        queue=row["queue_id"],
        request=request,
        count=len(heads),
        heads=tuple(heads),
        replicas=replicas,
        priority=row["priority"],
        is_preemptible=row["is_preemptible"],
        user=row["user_id"],
        can_exceed_limit=row["exceeds_limit"],
    )


def _rows() -> list[Any]:
    return list(
        TaskGroup.objects.filter(queue__removed_at__isnull=True)
        .order_by("id")
        .values(
            "id",
            "queue_id",
            "request",
            "replicas",
            "priority",
            "is_preemptible",
            "user_id",
            "exceeds_limit",
        )
    )


def _heads(most: Mapping[int, int]) -> dict[int, list[QueuedTask]]:
    found: dict[int, list[QueuedTask]] = defaultdict(list)
    if not most:
        return found
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(_HEADS_POSTGRESQL, [list(most), list(most.values())])
        else:
            cursor.execute(_HEADS_SQLITE, [max(most.values())])
        rows = cursor.fetchall()
    for queued, task, submitted in rows:
        if queued in most and len(found[queued]) < most[queued]:
            found[queued].append(QueuedTask(submitted_us=moment_us(submitted), task=id_text(task)))
    for heads in found.values():
        heads.sort(key=lambda head: (head.submitted_us, head.task))
    return found
