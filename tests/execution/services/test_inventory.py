"""What nodes report about themselves, and what their silence means."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.events.models import Event
from apps.execution.protocol.answers import Clocks, DeviceProcess, Probed
from apps.execution.protocol.answers import Device as ReportedDevice
from apps.execution.protocol.requests import Member
from apps.execution.services.inventory import (
    OUT_OF_THE_WAY,
    node_answered,
    node_has_unknown,
    node_missed,
    node_occupied,
    node_probed,
)
from apps.nodes.models import Device, DeviceState, Node, NodeState
from apps.tasks.models import Attempt, HeldDevice
from tests.allocation.state import make_node
from tests.cast import Example


class Clock:
    """The time, standing still until it is moved."""

    def __init__(self) -> None:
        self.now = timezone.now()

    def pass_by(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timezone, "now", clock)
    return clock


@pytest.fixture
def node(example: Example) -> Node:
    return make_node(example.h100, name="h1", gpus=2)


def probed(*devices: tuple[int, str], **changes: Any) -> Probed:
    facts: dict[str, Any] = {
        "hostname": "h1",
        "kernel": "6",
        "python": "3.11",
        "account": 0,
        "nvidia": "ok",
        "driver": "1",
        "devices": tuple(
            ReportedDevice(index, uuid, "H100", 81_920, 0, f"nvidia.com/gpu={uuid}", False)
            for index, uuid in devices
        ),
        "cdi_names": (),
        "cpu_milli": 64_000,
        "memory_mb": 65_536,
        "memory_free_mb": 1,
        "disk_mb": 1,
        "disk_free_mb": 1,
        "network": (),
        "runtimes": {},
        "crashes": "",
    }
    return Probed(**(facts | changes))


CLOCKS = Clocks(helper="1", boot_id="boot", uptime_s=1.0, wall_s=1.0)


def state_of(node: Node) -> str:
    return str(Node.objects.values_list("state", flat=True).get(pk=node.pk))


def devices_of(node: Node) -> dict[str, tuple[int, str]]:
    rows = Device.objects.filter(node=node).values_list("uuid", "index", "state")
    return {uuid: (index, state) for uuid, index, state in rows}


def test_three_misses_and_thirty_seconds_make_a_node_suspect(node: Node, clock: Clock) -> None:
    node_answered(node)
    states = []
    for _ in range(3):
        clock.pass_by(15)
        node.refresh_from_db()
        node_missed(node, "no answer")
        states.append(state_of(node))

    assert states == ["healthy", "healthy", "suspect"]
    assert Event.objects.filter(kind="node.suspect").count() == 1


def test_many_misses_within_a_moment_condemn_nobody(node: Node, clock: Clock) -> None:
    node_answered(node)
    for _ in range(10):
        clock.pass_by(1)
        node.refresh_from_db()
        node_missed(node, "no answer")

    assert state_of(node) == "healthy"


def test_two_misses_are_not_enough_however_long_they_take(node: Node, clock: Clock) -> None:
    node_answered(node)
    for _ in range(2):
        clock.pass_by(300)
        node.refresh_from_db()
        node_missed(node, "no answer")

    assert state_of(node) == "healthy"


@pytest.mark.parametrize("state", [NodeState.SUSPECT, NodeState.REFUSED, NodeState.NEW])
def test_a_node_that_answers_is_healthy_again(node: Node, clock: Clock, state: str) -> None:
    Node.objects.filter(pk=node.pk).update(state=state, missed_syncs=9, state_detail="silent")
    node.refresh_from_db()

    node_answered(node)

    node.refresh_from_db()
    assert (node.state, node.missed_syncs, node.state_detail) == ("healthy", 0, "")
    assert node.last_seen_at == clock.now


def test_another_host_key_refuses_the_node_at_once(node: Node, clock: Clock) -> None:
    node_answered(node)

    node_missed(node, "it shows SHA256:other", is_refused=True)

    node.refresh_from_db()
    assert (node.state, node.state_detail) == ("refused", "it shows SHA256:other")


def test_the_inventory_is_stored(node: Node) -> None:
    Device.objects.filter(node=node).delete()

    node_probed(node, probed((0, "GPU-a"), (1, "GPU-b")), CLOCKS)

    node.refresh_from_db()
    assert node.capacity == {"gpu": "2", "cpu": "64", "memory_mb": "65536"}
    assert (node.gpu_model, node.boot_id) == ("H100", "boot")
    assert node.report["hostname"] == "h1"
    assert devices_of(node) == {"GPU-a": (0, "healthy"), "GPU-b": (1, "healthy")}
    assert Device.objects.get(uuid="GPU-b").cdi == "nvidia.com/gpu=GPU-b"


def test_at_most_what_an_administrator_allows_is_given_out(node: Node) -> None:
    Node.objects.filter(pk=node.pk).update(capacity_cap={"cpu": "8", "gpu": "16"})
    node.refresh_from_db()

    node_probed(node, probed((0, "GPU-h1-0"), (1, "GPU-h1-1")), CLOCKS)

    assert node.capacity == {"gpu": "2", "cpu": "8", "memory_mb": "65536"}


def test_a_known_boot_is_kept_until_a_report_was_judged_by_it(node: Node) -> None:
    node_probed(node, probed(), CLOCKS)

    node_probed(node, probed(), Clocks(helper="1", boot_id="later", uptime_s=1.0, wall_s=1.0))

    node.refresh_from_db()
    assert node.boot_id == "boot"


def test_a_device_that_is_gone_stays_in_the_books_and_comes_back(node: Node) -> None:
    node_probed(node, probed((0, "GPU-h1-0")), CLOCKS)
    assert devices_of(node)["GPU-h1-1"] == (1, DeviceState.MISSING)

    node_probed(node, probed((0, "GPU-h1-0"), (1, "GPU-h1-1")), CLOCKS)

    assert devices_of(node)["GPU-h1-1"] == (1, DeviceState.HEALTHY)


def test_a_replaced_device_makes_way_and_keeps_its_history(node: Node, example: Example) -> None:
    old = Device.objects.get(node=node, index=1)
    Event.objects.all().delete()

    node_probed(node, probed((0, "GPU-h1-0"), (1, "GPU-new")), CLOCKS)

    assert devices_of(node) == {
        "GPU-h1-0": (0, "healthy"),
        "GPU-new": (1, "healthy"),
        "GPU-h1-1": (OUT_OF_THE_WAY + old.pk, "missing"),
    }
    assert HeldDevice.objects.count() == Attempt.objects.count() == 0


def test_devices_may_change_places(node: Node) -> None:
    node_probed(node, probed((0, "GPU-h1-1"), (1, "GPU-h1-0")), CLOCKS)

    assert devices_of(node) == {"GPU-h1-1": (0, "healthy"), "GPU-h1-0": (1, "healthy")}


def test_a_device_that_somebody_else_uses_is_occupied_until_they_are_done(node: Node) -> None:
    ours = DeviceProcess("GPU-h1-0", 11, 100, Member("t", 1, 0))
    strange = DeviceProcess("GPU-h1-1", 12, 100, None)

    node_occupied(node, (ours, strange))
    assert devices_of(node) == {"GPU-h1-0": (0, "healthy"), "GPU-h1-1": (1, "occupied")}
    assert Event.objects.filter(kind="node.devices").count() == 1
    node_occupied(node, (ours,))

    assert devices_of(node)["GPU-h1-1"] == (1, "healthy")


def test_unknown_work_under_our_name_is_shown(node: Node) -> None:
    node_has_unknown(node, (Member("t9", 3, 1),))

    event = Event.objects.get(kind="node.unknown_work")
    assert event.data == {"count": 1, "members": ["t9 3 1"]}
