"""Builders: nodes that exist in the books only, and tasks in the queues of the worked example."""

from collections import Counter
from datetime import timedelta

from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.applier import AppliedPlan, apply_plan
from apps.allocation.engine import decide
from apps.allocation.engine.model.plan import Plan
from apps.allocation.loader import LoadedSnapshot, load
from apps.allocation.loader.texts import microseconds
from apps.nodes.models import Device, Node, NodeState, Runtime, ServingProcess, Transport
from apps.policies.models import Pool, Queue
from apps.policies.services import live_version_raise
from apps.tasks.lifecycle.states import MemberState
from apps.tasks.models import Attempt, HeldDevice, Member, Task
from apps.tasks.services.attempts.next_state import MemberResult
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.services.members.exits import member_note_exit
from apps.tasks.services.members.launch import member_claim_start, member_note_start
from apps.tasks.task_spec import TaskSpec


def make_node(pool: Pool, *, name: str, gpus: int = 8, **changes: object) -> Node:
    """A healthy node with its devices; nothing is launched there."""
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
    live_version_raise()
    return node


def make_server() -> None:
    """A process that serves nodes, as `manage.py doctor` sees it."""
    ServingProcess.objects.create(token="here", alive_until=Now() + timedelta(minutes=1))


def change_content(*tasks: Task, **fields: object) -> None:
    """Change what these tasks run, or all of them, whatever their state."""
    for task in tasks or Task.objects.all():
        Task.objects.filter(pk=task.pk).update(content={**task.content, **fields})


def enqueue(actor: User, queue: Queue, count: int = 1, **changes: object) -> list[Task]:
    """Tasks that wait, in the order of the list."""
    return [
        task_submit(
            actor=actor,
            spec=TaskSpec(
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
        for member in attempt.members.all():
            assert member_claim_start(member_id=member.pk, token="t")
            assert member_note_start(member_id=member.pk, at=timezone.now())


def end(attempt: Attempt, *, code: int | None = 143, is_stop_asked: bool = True) -> None:
    """Their nodes say that they are gone."""
    for member in attempt.members.all():
        ended = MemberResult(code, is_stop_asked=is_stop_asked)
        assert member_note_exit(member_id=member.pk, ended=ended)


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
    for member in Member.objects.filter(state__in=[MemberState.STARTING, MemberState.RUNNING]):
        for index, milli in member.devices:
            there[member.node_id, index] += milli
    return found + [
        f"{index} of node {node}" for (node, index), all_ in there.items() if all_ > 1000
    ]


def _all_of(device: int) -> int:
    held = HeldDevice.objects.filter(device=device, released_at__isnull=True)
    return sum(held.values_list("milli", flat=True))


def decided() -> tuple[LoadedSnapshot, Plan]:
    loaded = load(now_us=microseconds(timezone.now()))
    return loaded, decide(loaded.snapshot)


def apply(loaded: LoadedSnapshot, plan: Plan) -> AppliedPlan:
    with transaction.atomic():
        return apply_plan(
            plan, snapshot=loaded.snapshot, group_ids=loaded.group_ids, now=timezone.now()
        )


def devices_of(attempt: Attempt) -> list[int]:
    held = HeldDevice.objects.filter(member__attempt=attempt, released_at__isnull=True)
    return sorted(held.values_list("device__index", flat=True))
