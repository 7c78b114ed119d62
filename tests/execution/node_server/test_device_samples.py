"""How GPUs are used: from a real node and pynvml over a stand-in for the driver to the sums."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apps.accounts.models import User
from apps.core import clock
from apps.execution.node_server.inventory_probe import InventoryProbe, at_once
from apps.execution.selectors import members_to_stop
from apps.nodes.models import Device, Node
from apps.policies.models import Queue
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import (
    Attempt,
    AttemptUse,
    DeviceUse,
    HeldDevice,
    IdleWarning,
    Member,
    NodeUse,
)
from apps.tasks.services.attempts.next_state import MemberResult
from apps.tasks.services.idle_rules import idle_rules_apply
from apps.tasks.services.members.exits import member_note_exit
from tests.allocation.state import apply, begin, decided, enqueue, latest, states
from tests.execution.nodes import INSTALLATION, TestedNode, installed_local, member_of
from tests.nvml.driver import Gpu, StubDriver
from tests.people import Example

# The probe writes as the process that serves the node.
pytestmark = pytest.mark.django_db

BEGIN = datetime(2026, 3, 1, 10, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
UUIDS = [f"GPU-{number}" for number in range(4)]


class SampledNode:
    """A real node as the server probes it, with a clock that moves only by `ask`."""

    def __init__(self, row: Node, tested: TestedNode, patch: pytest.MonkeyPatch) -> None:
        self.row, self.tested, self.patch = row, tested, patch
        self.probe = self.another_server()

    def another_server(self) -> InventoryProbe:
        """As after the one before was killed."""
        return InventoryProbe(self.row.pk, token="t", installation=INSTALLATION, submit=at_once)

    def ask(self, at: datetime) -> None:
        self.patch.setattr(clock, "now", lambda: at)
        self.patch.setattr(clock, "is_in_doubt", lambda: False)
        self.probe.want()
        self.probe.start(self.tested.client)
        assert self.probe.is_known


@pytest.fixture
def node(
    example: Example, stub_driver: StubDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SampledNode:
    stub_driver.tell(*(Gpu(uuid) for uuid in UUIDS))
    row = Node.objects.create(
        name="h1", pool=example.h100, transport="local", runtime="process", served_by="t"
    )
    sampled = SampledNode(row, installed_local(str(tmp_path / "home")), monkeypatch)
    sampled.ask(BEGIN - 2 * MINUTE)
    Node.objects.update(state="healthy")
    return sampled


@pytest.fixture
def attempt(example: Example, alice: User, node: SampledNode) -> Attempt:
    """It holds all four GPUs since long ago."""
    [task] = enqueue(alice, example.dev_queue)
    apply(*decided())
    begin(latest(task))
    Member.objects.update(started_at=BEGIN - timedelta(days=1))
    return latest(task)


def test_figures_of_the_driver_reach_the_task_that_holds_the_gpu(
    node: SampledNode, attempt: Attempt, stub_driver: StubDriver
) -> None:
    request = node.tested.launch_request(
        *("sh", "-c", "echo $$; sleep 60"), task_id=str(attempt.task_id)
    )
    node.tested.client.launch(request)
    member = member_of(request)
    node.tested.wait_for(member, lambda _: node.tested.logs.get(member, b"").endswith(b"\n"))
    own = int(node.tested.logs[member])

    def tell(percent: int) -> None:
        busy = Gpu(
            UUIDS[0],
            used_mb=9_000,
            utilisation=percent,
            power_mw=300_000,
            processes=((own, 8_000),),
        )
        stub_driver.tell(busy, *(Gpu(uuid) for uuid in UUIDS[1:]))

    tell(80)
    node.ask(BEGIN)
    node.ask(BEGIN + MINUTE)
    tell(20)
    node.ask(BEGIN + 2 * MINUTE)

    first = HeldDevice.objects.get(device__uuid=UUIDS[0])
    use = DeviceUse.objects.get(held=first, at=BEGIN.replace(minute=0))
    assert (use.busy, use.known_ms) == ((80 + 80 + 20) * 60_000, 180_000)
    assert (use.memory_mb, use.process_ms) == (9_000, use.sampled_ms)
    others = DeviceUse.objects.exclude(held=first).filter(at=use.at)
    assert set(others.values_list("busy", "process_ms", "memory_mb")) == {(0, 0, 0)}
    whole = AttemptUse.objects.get()
    assert whole.attempt == attempt
    assert whole.used_at == whole.sampled_at == BEGIN + 2 * MINUTE
    assert whole.energy_wh > 0
    node.tested.stop(member, grace_s=0)
    node.tested.wait_for_exit(member)


def test_a_killed_server_an_absence_and_a_clock_that_jumps_double_nothing(
    node: SampledNode, attempt: Attempt
) -> None:
    node.ask(BEGIN)
    before = AttemptUse.objects.get().sampled_ms
    node.ask(BEGIN + MINUTE)
    assert AttemptUse.objects.get().sampled_ms - before == 4 * 60_000

    node.probe = node.another_server()
    node.ask(BEGIN + MINUTE)
    node.ask(BEGIN + MINUTE - timedelta(seconds=30))
    assert AttemptUse.objects.get().sampled_ms - before == 4 * 60_000

    node.ask(BEGIN + 61 * MINUTE)
    assert AttemptUse.objects.get().sampled_ms - before == 4 * (60_000 + 120_000)


def test_a_server_that_lost_the_node_samples_nothing(node: SampledNode, attempt: Attempt) -> None:
    node.ask(BEGIN)
    before = AttemptUse.objects.get().sampled_ms
    Node.objects.update(served_by="another")
    node.probe.want()
    node.probe.start(node.tested.client)

    assert AttemptUse.objects.get().sampled_ms == before


def test_what_the_machine_itself_uses_is_sampled_with_its_gpus(node: SampledNode) -> None:
    NodeUse.objects.all().delete()
    node.ask(BEGIN)
    node.ask(BEGIN + MINUTE)
    node.probe = node.another_server()
    node.ask(BEGIN + 3 * MINUTE)
    node.ask(BEGIN + 63 * MINUTE)

    total = Node.objects.get().report
    rows = list(NodeUse.objects.order_by("at"))
    assert [(one.at, one.sampled_ms, one.counted_ms) for one in rows] == [
        (BEGIN - 6 * MINUTE, 60_000, 60_000),
        # A minute before, one after, and two that a new server has no rates of.
        (BEGIN - MINUTE, 4 * 60_000, 2 * 60_000),
        (BEGIN + 59 * MINUTE, 2 * 60_000, 2 * 60_000),
    ]
    for one in rows:
        assert 0 < one.memory / one.sampled_ms < total["memory_mb"]
        assert 0 < one.disk_mb <= total["disk_mb"]
        assert one.cpu <= 100 * one.counted_ms


def test_a_gpu_that_is_made_up_or_lost_is_not_sampled(
    node: SampledNode, attempt: Attempt, stub_driver: StubDriver
) -> None:
    Device.objects.filter(uuid=UUIDS[3]).update(is_simulated=True)
    stub_driver.tell(*(Gpu(uuid) for uuid in UUIDS[:2]))
    node.ask(BEGIN)

    sampled = DeviceUse.objects.values_list("held__device__uuid", flat=True)
    assert set(sampled) <= set(UUIDS[:2])


def test_a_task_that_leaves_its_gpus_idle_is_warned_and_stopped_on_its_node(
    node: SampledNode, example: Example, alice: User, stub_driver: StubDriver
) -> None:
    rule = {"idle_warn_minutes": 5, "idle_stop_minutes": 7}
    Queue.objects.filter(pk=example.dev_queue.pk).update(**rule)
    [task] = enqueue(alice, example.dev_queue)
    apply(*decided())
    begin(latest(task))
    Attempt.objects.update(started_at=BEGIN)
    Member.objects.update(started_at=BEGIN)
    request = node.tested.launch_request("sleep", "60", task_id=str(task.pk))
    node.tested.client.launch(request)
    member = member_of(request)
    node.tested.wait_for(member, lambda report: report.state == "running")

    def minutes(*count: int, percent: int) -> None:
        stub_driver.tell(*(Gpu(uuid, utilisation=percent) for uuid in UUIDS))
        for minute in range(*count):
            node.ask(BEGIN + minute * MINUTE)
            idle_rules_apply()

    minutes(0, 3, percent=90)
    minutes(3, 7, percent=2)
    assert not IdleWarning.objects.exists()
    minutes(7, 8, percent=2)
    assert IdleWarning.objects.get().stop_at == BEGIN + 9 * MINUTE
    minutes(8, 9, percent=60)
    assert not IdleWarning.objects.exists()
    minutes(9, 15, percent=4)
    assert states([task])[0] == TaskState.RUNNING
    minutes(15, 16, percent=4)
    assert states([task])[0] == TaskState.STOPPING

    [stopping] = members_to_stop([node.row.pk])
    assert stopping.attempt.task_id == task.pk
    node.tested.stop(member, grace_s=0)
    node.tested.wait_for_exit(member)
    member_note_exit(member_id=stopping.pk, ended=MemberResult(143))
    task.refresh_from_db()
    assert task.state == TaskState.ABORTED
    assert task.state_detail == "Stopped: idle for 7 minutes; queue dev-4xgpu stops idle tasks."
