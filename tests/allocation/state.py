"""Builders: nodes that exist in the books only, and tasks in the queues of the worked example."""

from apps.accounts.models import User
from apps.nodes.models import Device, Node, NodeState, Transport
from apps.policies.models import Pool, Queue
from apps.tasks.descriptions import Description
from apps.tasks.models import Task
from apps.tasks.services.enqueueing import task_submit


def make_node(pool: Pool, *, name: str, gpus: int = 8, **changes: object) -> Node:
    """A healthy node with its devices; nobody will be asked to launch anything there."""
    facts: dict[str, object] = {
        "transport": Transport.LOCAL,
        "state": NodeState.HEALTHY,
        "capacity": {"gpu": str(gpus), "cpu": "64", "memory_mb": "65536"},
        "gpu_model": "H100",
    }
    node = Node.objects.create(name=name, pool=pool, **(facts | changes))
    Device.objects.bulk_create(
        Device(node=node, index=index, uuid=f"GPU-{name}-{index}") for index in range(gpus)
    )
    return node


def enqueue(actor: User, queue: Queue, count: int = 1, **changes: object) -> list[Task]:
    """Tasks that wait, in the order of the list."""
    return [
        task_submit(
            actor=actor,
            description=Description(
                name=f"{queue.name}-{number}",
                queue=queue.name,
                command=["true"],
                **changes,  # type: ignore[arg-type]  # the description checks each field
            ),
        )
        for number in range(count)
    ]


def states(tasks: list[Task]) -> list[str]:
    """The states of the tasks as the database has them now."""
    found = dict(Task.objects.filter(pk__in=[task.pk for task in tasks]).values_list("pk", "state"))
    return [found[task.pk] for task in tasks]
