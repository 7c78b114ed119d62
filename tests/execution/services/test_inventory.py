"""What nodes report about themselves, and what their silence means."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.utils import timezone

from apps.events.models import Event
from apps.execution.protocol.answers import Clocks, DeviceProcess, DeviceReport, NodeInventory
from apps.execution.protocol.requests import MemberKey
from apps.execution.services.inventory import (
    node_mark_healthy,
    node_record_miss,
    node_store_inventory,
    node_store_occupied,
    node_store_unknown,
)
from apps.nodes.models import RETIRED_INDEX, Device, DeviceState, Node, NodeState
from apps.policies.models import LiveState
from apps.tasks.models import Attempt, HeldDevice
from tests.allocation.state import make_node
from tests.people import Example


class Clock:
    """The time, fixed until it is moved."""

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


def inventory(*devices: tuple[int, str], **changes: Any) -> NodeInventory:
    facts: dict[str, Any] = {
        "hostname": "h1",
        "kernel": "6",
        "python": "3.11",
        "account": 0,
        "nvidia": "ok",
        "driver": "1",
        "devices": tuple(
            DeviceReport(index, uuid, "H100", 81_920, 0, f"nvidia.com/gpu={uuid}", False)
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
    return NodeInventory(**(facts | changes))


CLOCKS = Clocks(helper="1", boot_id="boot", uptime_s=1.0, wall_s=1.0)


def state_of(node: Node) -> str:
    return str(Node.objects.values_list("state", flat=True).get(pk=node.pk))


def devices_of(node: Node) -> dict[str, tuple[int, str]]:
    rows = Device.objects.filter(node=node).values_list("uuid", "index", "state")
    return {uuid: (index, state) for uuid, index, state in rows}


def missed(node: Node, *silent: float) -> list[str]:
    """Its state after each of these misses; `silent`: seconds since it was last heard."""
    states = []
    for silent_s in silent:
        node.refresh_from_db()
        node_record_miss(node, "no answer", silent_s=silent_s)
        states.append(state_of(node))
    return states


def test_three_misses_and_thirty_seconds_make_a_node_suspect(node: Node) -> None:
    node_mark_healthy(node)

    assert missed(node, 15, 29, 30) == ["healthy", "healthy", "suspect"]

    assert Event.objects.filter(kind="node.suspect").count() == 1


def test_many_misses_within_a_moment_condemn_nobody(node: Node) -> None:
    node_mark_healthy(node)

    assert missed(node, *range(10)) == ["healthy"] * 10


def test_two_misses_are_not_enough_however_long_they_take(node: Node) -> None:
    node_mark_healthy(node)

    assert missed(node, 300, 600) == ["healthy"] * 2


def test_a_clock_that_jumps_makes_nobody_silent(node: Node, clock: Clock) -> None:
    node_mark_healthy(node)
    clock.pass_by(7200)

    assert missed(node, 1, 2, 3) == ["healthy"] * 3


@pytest.mark.parametrize("state", [NodeState.SUSPECT, NodeState.REFUSED, NodeState.NEW])
def test_a_node_that_answers_is_healthy_again(node: Node, clock: Clock, state: str) -> None:
    Node.objects.filter(pk=node.pk).update(state=state, missed_syncs=9, state_detail="silent")
    node.refresh_from_db()

    node_mark_healthy(node)

    node.refresh_from_db()
    assert (node.state, node.missed_syncs, node.state_detail) == ("healthy", 0, "")
    assert node.last_seen_at == clock.now


def test_another_host_key_refuses_the_node_at_once(node: Node, clock: Clock) -> None:
    node_mark_healthy(node)

    node_record_miss(node, "it shows SHA256:other", silent_s=0, is_refused=True)

    node.refresh_from_db()
    assert (node.state, node.state_detail) == ("refused", "it shows SHA256:other")


def test_the_inventory_is_stored(node: Node) -> None:
    Device.objects.filter(node=node).delete()

    node_store_inventory(node, inventory((0, "GPU-a"), (1, "GPU-b")), CLOCKS)

    node.refresh_from_db()
    assert node.capacity == {"gpu": "2", "cpu": "64", "memory_mb": "65536"}
    assert (node.gpu_model, node.boot_id) == ("H100", "boot")
    assert node.report["hostname"] == "h1"
    assert devices_of(node) == {"GPU-a": (0, "healthy"), "GPU-b": (1, "healthy")}
    assert Device.objects.get(uuid="GPU-b").cdi == "nvidia.com/gpu=GPU-b"


def test_only_another_size_of_a_node_is_a_new_version(node: Node) -> None:
    sizes = [
        inventory((0, "GPU-a")),
        inventory((0, "GPU-a")),
        inventory((0, "GPU-a"), (1, "GPU-b")),
    ]
    versions = [LiveState.objects.get().version]

    for one in sizes:
        node_store_inventory(node, one, CLOCKS)
        versions.append(LiveState.objects.get().version)

    first = versions[0]
    assert versions == [first, first + 1, first + 1, first + 2]


def test_at_most_what_an_administrator_allows_is_given_out(node: Node) -> None:
    Node.objects.filter(pk=node.pk).update(capacity_cap={"cpu": "8", "gpu": "16"})
    node.refresh_from_db()

    node_store_inventory(node, inventory((0, "GPU-h1-0"), (1, "GPU-h1-1")), CLOCKS)

    assert node.capacity == {"gpu": "2", "cpu": "8", "memory_mb": "65536"}


def test_a_known_boot_is_kept_until_a_report_was_judged_by_it(node: Node) -> None:
    node_store_inventory(node, inventory(), CLOCKS)

    node_store_inventory(
        node, inventory(), Clocks(helper="1", boot_id="later", uptime_s=1.0, wall_s=1.0)
    )

    node.refresh_from_db()
    assert node.boot_id == "boot"


def test_a_device_that_is_gone_stays_in_the_books_and_comes_back(node: Node) -> None:
    node_store_inventory(node, inventory((0, "GPU-h1-0")), CLOCKS)
    assert devices_of(node)["GPU-h1-1"] == (1, DeviceState.MISSING)

    node_store_inventory(node, inventory((0, "GPU-h1-0"), (1, "GPU-h1-1")), CLOCKS)

    assert devices_of(node)["GPU-h1-1"] == (1, DeviceState.HEALTHY)


def test_a_replaced_device_makes_way_and_keeps_its_history(node: Node, example: Example) -> None:
    old = Device.objects.get(node=node, index=1)
    Event.objects.all().delete()

    node_store_inventory(node, inventory((0, "GPU-h1-0"), (1, "GPU-new")), CLOCKS)

    assert devices_of(node) == {
        "GPU-h1-0": (0, "healthy"),
        "GPU-new": (1, "healthy"),
        "GPU-h1-1": (RETIRED_INDEX + old.pk, "missing"),
    }
    assert HeldDevice.objects.count() == Attempt.objects.count() == 0


def test_a_device_keeps_its_number_when_the_driver_renumbers(node: Node) -> None:
    # Running work is on the books by these numbers.
    node_store_inventory(node, inventory((0, "GPU-h1-1"), (1, "GPU-h1-0")), CLOCKS)

    assert devices_of(node) == {"GPU-h1-0": (0, "healthy"), "GPU-h1-1": (1, "healthy")}


def test_the_others_keep_their_numbers_when_a_gpu_falls_off_the_bus(node: Node) -> None:
    lost = inventory((0, "GPU-h1-1"), nvidia="GPU 0: GPU is lost")

    node_store_inventory(node, lost, CLOCKS)

    assert devices_of(node) == {"GPU-h1-0": (0, "missing"), "GPU-h1-1": (1, "healthy")}
    event = Event.objects.get(kind="node.devices")
    assert event.data == {"missing": ["GPU-h1-0"], "back": [], "detail": "GPU 0: GPU is lost"}


def test_a_new_device_gets_a_number_that_nobody_else_has(node: Node) -> None:
    node_store_inventory(node, inventory((0, "GPU-new"), (1, "GPU-h1-0"), (2, "GPU-h1-1")), CLOCKS)

    assert devices_of(node) == {
        "GPU-h1-0": (0, "healthy"),
        "GPU-h1-1": (1, "healthy"),
        "GPU-new": (2, "healthy"),
    }


def test_a_device_that_is_gone_or_back_is_recorded_once(node: Node) -> None:
    for devices in ([(0, "GPU-h1-0")], [(0, "GPU-h1-0")], [(0, "GPU-h1-0"), (1, "GPU-h1-1")]):
        node_store_inventory(node, inventory(*devices), CLOCKS)

    first, second = Event.objects.filter(kind="node.devices").order_by("pk")
    assert (first.data["missing"], first.data["back"]) == (["GPU-h1-1"], [])
    assert (second.data["missing"], second.data["back"]) == ([], ["GPU-h1-1"])


def test_slices_take_the_place_of_the_gpu_that_is_split(node: Node) -> None:
    sliced = tuple(
        DeviceReport(100 + n, f"MIG-{n}", "H100 MIG", 9_856, 0, "", False, None, "GPU-h1-0")
        for n in range(2)
    )
    whole = inventory((1, "GPU-h1-1")).devices

    node_store_inventory(node, inventory(devices=(*sliced, *whole)), CLOCKS)

    assert devices_of(node) == {
        "GPU-h1-0": (0, "missing"),
        "GPU-h1-1": (1, "healthy"),
        "MIG-0": (100, "healthy"),
        "MIG-1": (101, "healthy"),
    }
    assert node.capacity["gpu"] == "3"
    parents = Device.objects.filter(node=node).exclude(parent_uuid="")
    assert set(parents.values_list("uuid", "parent_uuid")) == {
        ("MIG-0", "GPU-h1-0"),
        ("MIG-1", "GPU-h1-0"),
    }


def test_a_device_that_somebody_else_uses_is_occupied_until_they_are_done(node: Node) -> None:
    ours = DeviceProcess("GPU-h1-0", 11, 100, MemberKey("t", 1, 0))
    strange = DeviceProcess("GPU-h1-1", 12, 100, None)

    node_store_occupied(node, (ours, strange))
    assert devices_of(node) == {"GPU-h1-0": (0, "healthy"), "GPU-h1-1": (1, "occupied")}
    assert Event.objects.filter(kind="node.devices").count() == 1
    # Which processes they are, for the node's page.
    theirs = {"uuid": "GPU-h1-1", "pid": 12, "memory_mb": 100}
    assert Node.objects.get(pk=node.pk).report["foreign_processes"] == [theirs]
    node_store_occupied(node, (ours,))

    assert devices_of(node)["GPU-h1-1"] == (1, "healthy")
    assert Node.objects.get(pk=node.pk).report["foreign_processes"] == []


def test_unknown_work_under_our_name_is_shown(node: Node) -> None:
    node_store_unknown(node, (MemberKey("t9", 3, 1),))

    event = Event.objects.get(kind="node.unknown_work")
    assert event.data == {"count": 1, "members": ["t9 3 1"]}


def test_a_node_that_names_other_unknown_work_each_time_is_recorded_once(node: Node) -> None:
    for generation in range(1, 5):
        node_store_unknown(node, (MemberKey("t9", generation, 0), MemberKey("t8", generation, 0)))

    assert Event.objects.filter(kind="node.unknown_work").count() == 1
    assert Node.objects.get(pk=node.pk).unknown_work == 2
    for _ in range(100):
        node_store_unknown(node, ())
        assert Node.objects.get(pk=node.pk).unknown_work == 0
        node_store_unknown(node, (MemberKey("t9", 1, 0),))
    assert Event.objects.filter(kind="node.unknown_work").count() == 30


def test_what_a_node_says_of_devices_that_it_has_not_is_nowhere_kept(node: Node) -> None:
    made_up = tuple(DeviceProcess(f"GPU-{n}" + "x" * 100, n, 1, None) for n in range(10_000))

    node_store_occupied(node, (DeviceProcess("GPU-h1-1", 12, 100, None), *made_up))

    assert Event.objects.get(kind="node.devices").data == {"occupied": ["GPU-h1-1"]}
    kept = Node.objects.get(pk=node.pk).report["foreign_processes"]
    assert [one["uuid"] for one in kept] == ["GPU-h1-1"]


def test_a_node_gets_no_gpu_that_another_one_gives_out(node: Node, example: Example) -> None:
    """It could have it counted twice, and keep the machine from ever being added again."""
    rogue = make_node(example.h100, name="h2", gpus=0)
    claims = inventory((0, "GPU-h1-1"), (1, "GPU-own"))

    for _ in range(2):
        node_store_inventory(rogue, claims, CLOCKS)

    assert devices_of(rogue) == {"GPU-own": (1, "healthy")}
    assert (rogue.capacity["gpu"], devices_of(node)["GPU-h1-1"]) == ("1", (1, "healthy"))
    assert Event.objects.get(kind="node.devices").data == {"claimed": ["GPU-h1-1"]}


def test_a_gpu_goes_back_to_the_node_that_had_it_first(node: Node, example: Example) -> None:
    other = make_node(example.h100, name="h2", gpus=0)
    node_store_inventory(node, inventory((0, "GPU-h1-0")), CLOCKS)
    node_store_inventory(other, inventory((0, "GPU-h1-1")), CLOCKS)
    assert devices_of(other) == {"GPU-h1-1": (0, "healthy")}, "it was moved there"

    for one, devices in ((node, ("GPU-h1-0", "GPU-h1-1")), (other, ("GPU-h1-1",))):
        node_store_inventory(one, inventory(*enumerate(devices)), CLOCKS)

    assert devices_of(node)["GPU-h1-1"] == (1, "healthy")
    assert devices_of(other) == {"GPU-h1-1": (0, "missing")}


def test_a_device_that_was_simulated_becomes_nobody_elses(node: Node, example: Example) -> None:
    rogue = make_node(example.h100, name="h2", gpus=0)
    real = inventory((0, "GPU-h1-1"))
    pretended = tuple(msgspec.structs.replace(one, simulated=True) for one in real.devices)

    node_store_inventory(rogue, inventory(devices=pretended), CLOCKS)
    node_store_inventory(rogue, real, CLOCKS)

    assert devices_of(rogue) == {"GPU-h1-1": (0, "missing")}
    assert devices_of(node)["GPU-h1-1"] == (1, "healthy")
