"""Builders: nodes that exist in the books only, and tasks in the queues of the worked example."""

from collections import Counter

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.applier import Applied, apply_plan
from apps.allocation.engine import decide
from apps.allocation.engine.plan import Plan
from apps.allocation.loader import Loaded, load
from apps.allocation.loader.texts import microseconds
from apps.nodes.models import Device, Node, NodeState, Runtime, Transport
from apps.policies.models import Pool, Queue
from apps.tasks.descriptions import Description
from apps.tasks.models import Attempt, HeldDevice, Holding, Task
from apps.tasks.services.attempts import (
    Ended,
    member_claim_start,
    member_exited,
    member_started,
)
from apps.tasks.services.enqueueing import task_submit
from apps.tasks.states import MemberState


def make_node(pool: Pool, *, name: str, gpus: int = 8, **changes: object) -> Node:
    """A healthy node with its devices; nobody will be asked to launch anything there."""
    facts: dict[str, object] = {
        "transport": Transport.LOCAL,
        "state": NodeState.HEALTHY,
        "capacity": {"gpu": str(gpus), "cpu": "64", "memory_mb": "65536"},
        "gpu_model": "H100",
        # Tasks of most tests have no image.
        "runtime": Runtime.PROCESS,
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


def begin(*attempts: Attempt) -> None:
    """Their members are launched and run."""
    for attempt in attempts:
        for holding in attempt.holdings.all():
            assert member_claim_start(holding_id=holding.pk, token="t")
            assert member_started(holding_id=holding.pk, at=timezone.now())


def end(attempt: Attempt, *, code: int | None = 143, is_stop_asked: bool = True) -> None:
    """Their nodes say that they are gone."""
    for holding in attempt.holdings.all():
        ended = Ended(code, is_stop_asked=is_stop_asked)
        assert member_exited(holding_id=holding.pk, ended=ended)


def latest(task: Task) -> Attempt:
    """The last attempt of a task."""
    return Attempt.objects.filter(task=task).order_by("-generation")[0]


def overbooked() -> list[str]:
    """Devices of which more is given out than there is: in the ledger, and by what may be there.

    What may be there are members that were launched and are not known to be gone.
    """
    found = [
        f"{held.device_id} in the ledger"
        for held in HeldDevice.objects.filter(released_at__isnull=True)
        if _all_of(held.device_id) > 1000
    ]
    there: Counter[tuple[int | None, int]] = Counter()
    for holding in Holding.objects.filter(state__in=[MemberState.STARTING, MemberState.RUNNING]):
        for index, milli in holding.devices:
            there[holding.node_id, index] += milli
    return found + [
        f"{index} of node {node}" for (node, index), all_ in there.items() if all_ > 1000
    ]


def _all_of(device: int) -> int:
    held = HeldDevice.objects.filter(device=device, released_at__isnull=True)
    return sum(held.values_list("milli", flat=True))


def decided() -> tuple[Loaded, Plan]:
    loaded = load(now_us=microseconds(timezone.now()))
    return loaded, decide(loaded.snapshot)


def apply(loaded: Loaded, plan: Plan) -> Applied:
    with transaction.atomic():
        return apply_plan(plan, snapshot=loaded.snapshot, runs=loaded.run_ids, now=timezone.now())


def devices_of(attempt: Attempt) -> list[int]:
    held = HeldDevice.objects.filter(holding__attempt=attempt, released_at__isnull=True)
    return sorted(held.values_list("device__index", flat=True))
