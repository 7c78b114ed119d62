"""The snapshot of now with every waiting task counted, those behind the heads included."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from django.db.models import Count

from apps.allocation.engine.snapshot import Run
from apps.allocation.loader import Loaded, load
from apps.tasks.models import Task
from apps.tasks.states import TaskState


def load_counted(*, now_us: int) -> Loaded:
    """As a pass takes it, which needs the heads of a run only, and how many stand behind them."""
    loaded = load(now_us=now_us)
    counts = waiting_counts()
    runs = tuple(
        counted(run, counts[pk])
        for pk, run in zip(loaded.run_ids, loaded.snapshot.runs, strict=True)
    )
    return replace(loaded, snapshot=replace(loaded.snapshot, runs=runs))


def waiting_counts() -> Mapping[int, int]:
    """Waiting tasks by the id of their run; one query, answered from an index."""
    rows = Task.objects.filter(state=TaskState.QUEUED).order_by().values_list("run_id")
    return defaultdict(int, {pk or 0: count for pk, count in rows.annotate(Count("pk"))})


def counted(run: Run, count: int) -> Run:
    """With all that wait; what came after the count is not less for it."""
    return replace(run, count=max(count, len(run.heads)))
