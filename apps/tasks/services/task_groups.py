"""The task groups of a queue: its equal tasks."""

from collections.abc import Iterable

from apps.tasks.models import TaskGroup
from apps.tasks.shapes import TaskShape


def task_group_ensure(queue_id: int, shape: TaskShape) -> int:
    """The id of the task group of this shape, created where it is new."""
    return task_groups_ensure(queue_id, [shape])[shape.digest()]


def task_groups_ensure(queue_id: int, shapes: Iterable[TaskShape]) -> dict[str, int]:
    """The ids of the groups of these shapes, by digest; a fixed number of queries."""
    wanted = {shape.digest(): shape for shape in shapes}
    known = _known(queue_id, wanted)
    new = [
        _task_group(queue_id, digest, wanted[digest]) for digest in sorted(wanted.keys() - known)
    ]
    if new:
        # Another request may create some of them at the same moment.
        TaskGroup.objects.bulk_create(new, ignore_conflicts=True)
        known = _known(queue_id, wanted)
    return known


def _known(queue_id: int, digests: Iterable[str]) -> dict[str, int]:
    rows = TaskGroup.objects.filter(queue_id=queue_id, shape__in=list(digests))
    return dict(rows.values_list("shape", "pk"))


def _task_group(queue_id: int, digest: str, shape: TaskShape) -> TaskGroup:
    return TaskGroup(
        queue_id=queue_id,
        shape=digest,
        request=dict(shape.request) if shape.request is not None else None,
        replicas=shape.replicas,
        priority=shape.priority,
        is_preemptible=shape.is_preemptible,
        user_id=shape.user_id,
        exceeds_limit=shape.exceeds_limit,
    )
