"""A running task whose GPUs do what a test says, in a queue that stops idle ones."""

from datetime import UTC, datetime, timedelta

import pytest

from apps.accounts.models import User
from apps.events.models import Event
from apps.nodes.models import Device, Node
from apps.policies.models import Queue
from apps.tasks.models import (
    Attempt,
    Member,
    Task,
)
from apps.tasks.services.gpu_use import DeviceSample, device_samples_record
from apps.tasks.services.idle_rules import idle_rules_apply
from tests.allocation.state import apply, begin, decided, enqueue, latest, make_node
from tests.people import Example

BEGIN = datetime(2026, 3, 1, 10, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
WARN, STOP = 15, 25


class IdleTask:
    """A running task with four GPUs, whose minutes pass as a test says."""

    def __init__(self, node: Node, task: Task) -> None:
        self.node, self.task, self.at = node, task, BEGIN
        self.sample(0)

    def sample(self, percent: int | None, *, only: int = 8) -> None:
        """What the first of its GPUs do at this moment."""
        uuids = Device.objects.filter(node=self.node, index__lt=only).values_list("uuid", flat=True)
        samples = [DeviceSample(uuid, 1, percent, None) for uuid in uuids]
        device_samples_record(self.node, samples, {}, now=self.at)

    def minutes(self, count: int, percent: int | None = 0, *, only: int = 8) -> None:
        """Samples and the periodic job, each minute."""
        for _ in range(count):
            self.at += MINUTE
            self.sample(percent, only=only)
            idle_rules_apply(now=self.at)

    def kinds(self) -> list[str]:
        """The events of idle tasks, the oldest first."""
        rows = Event.objects.filter(kind__contains="idle", object_id=str(self.task.pk))
        return [
            kind.removeprefix("task.")
            for kind in rows.order_by("pk").values_list("kind", flat=True)
        ]

    @property
    def state(self) -> str:
        return Task.objects.values_list("state", flat=True).get(pk=self.task.pk)


@pytest.fixture
def node(example: Example) -> Node:
    return make_node(example.h100, name="h1")


@pytest.fixture
def queue(example: Example) -> Queue:
    rule = {"idle_warn_minutes": WARN, "idle_stop_minutes": STOP}
    Queue.objects.filter(pk=example.dev_queue.pk).update(**rule)
    example.dev_queue.refresh_from_db()
    return example.dev_queue


@pytest.fixture
def idle(queue: Queue, alice: User, node: Node) -> IdleTask:
    [task] = enqueue(alice, queue)
    apply(*decided())
    begin(latest(task))
    Attempt.objects.update(allocated_at=BEGIN, started_at=BEGIN)
    Member.objects.update(started_at=BEGIN)
    return IdleTask(node, task)
