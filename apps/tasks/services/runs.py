"""The runs of a queue: its equal tasks."""

from collections.abc import Iterable

from apps.tasks.models import Run
from apps.tasks.shapes import Shape


def run_ensure(queue_id: int, shape: Shape) -> int:
    """The id of the run of this shape, made where it is new."""
    return runs_ensure(queue_id, [shape])[shape.digest()]


def runs_ensure(queue_id: int, shapes: Iterable[Shape]) -> dict[str, int]:
    """The ids of the runs of these shapes, by digest; the number of queries does not grow."""
    wanted = {shape.digest(): shape for shape in shapes}
    known = _known(queue_id, wanted)
    new = [_run(queue_id, digest, wanted[digest]) for digest in sorted(wanted.keys() - known)]
    if new:
        # Another request may make some of them at the same moment.
        Run.objects.bulk_create(new, ignore_conflicts=True)
        known = _known(queue_id, wanted)
    return known


def _known(queue_id: int, digests: Iterable[str]) -> dict[str, int]:
    rows = Run.objects.filter(queue_id=queue_id, shape__in=list(digests))
    return dict(rows.values_list("shape", "pk"))


def _run(queue_id: int, digest: str, shape: Shape) -> Run:
    return Run(
        queue_id=queue_id,
        shape=digest,
        request=dict(shape.request) if shape.request is not None else None,
        replicas=shape.replicas,
        priority=shape.priority,
        is_preemptible=shape.is_preemptible,
        user_id=shape.user_id,
        exceeds_limit=shape.exceeds_limit,
    )
