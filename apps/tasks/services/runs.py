"""The runs of a queue: its equal tasks."""

from apps.tasks.models import Run
from apps.tasks.shapes import Shape


def run_ensure(queue_id: int, shape: Shape) -> int:
    """The id of the run of this shape, made where it is new."""
    run, _ = Run.objects.get_or_create(
        queue_id=queue_id,
        shape=shape.digest(),
        defaults={
            "request": dict(shape.request) if shape.request is not None else None,
            "replicas": shape.replicas,
            "priority": shape.priority,
            "is_preemptible": shape.is_preemptible,
            "user_id": shape.user_id,
            "exceeds_limit": shape.exceeds_limit,
        },
    )
    return run.pk
