"""The current snapshot with every waiting task counted, those behind the heads included."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from django.db.models import Count

from apps.allocation.engine.model.snapshot import QueuedGroup
from apps.allocation.loader import LoadedSnapshot, load
from apps.tasks.models import Task
from apps.tasks.selectors.eligibility import ELIGIBLE


def load_with_queued_counts(*, now_us: int) -> LoadedSnapshot:
    """As a pass takes it, with the heads of each group only, and how many tasks are behind them."""
    loaded = load(now_us=now_us)
    counts = queued_counts()
    queued_groups = tuple(
        with_count(queued, counts[pk])
        for pk, queued in zip(loaded.group_ids, loaded.snapshot.queued_groups, strict=True)
    )
    return replace(loaded, snapshot=replace(loaded.snapshot, queued_groups=queued_groups))


def queued_counts() -> Mapping[int, int]:
    """Eligible waiting tasks by the id of their group; one query, answered from an index."""
    tasks = Task.objects.filter(ELIGIBLE)
    rows = tasks.order_by().values_list("task_group_id")
    return defaultdict(int, {pk or 0: count for pk, count in rows.annotate(Count("pk"))})


def with_count(queued: QueuedGroup, count: int) -> QueuedGroup:
    """With all that wait; what came after the count does not lower it."""
    return replace(queued, count=max(count, len(queued.heads)))
