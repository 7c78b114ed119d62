"""The inventory is asked for next to the syncs, whatever the node's runtime and driver do."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import msgspec
import pytest

from apps.execution.bundle import helper_version
from apps.execution.client import NodeClient
from apps.execution.leases import NodeClock
from apps.execution.node_server import inventory_probe
from apps.execution.node_server.inventory_probe import InventoryProbe
from apps.execution.node_server.loop import NodeLoop
from apps.execution.transport.base import ExchangeFailed, NodeTransport
from apps.nodes.models import Node
from tests.allocation.state import make_node
from tests.people import Example
from tests.services.ports import wait_until

# Probes have threads and connections of their own.
pytestmark = pytest.mark.django_db(transaction=True)

CLOCKS = {
    "protocol": 1,
    "helper": helper_version(),
    "boot_id": "boot",
    "uptime_s": 5.0,
    "wall_s": 5.0,
}
EMPTY = {"version": "1", "members": [], "logs": []}


class HungDriver:
    """A node whose probe hangs until `may_end`, and then fails; its syncs are answered."""

    def __init__(self) -> None:
        self.is_away = False
        self.syncs = 0
        self.probes = 0
        self.may_end = threading.Event()

    def exchange(self, request: bytes, *, timeout_s: float) -> bytes:
        if msgspec.json.decode(request)["verb"] == "probe":
            self.probes += 1
            self.may_end.wait()
            raise ExchangeFailed("no answer in time")
        if self.is_away:
            raise ExchangeFailed("the connection was cut")
        self.syncs += 1
        return msgspec.json.encode(CLOCKS | {"answer": EMPTY})

    def close(self) -> None:
        """There is no connection."""


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


@pytest.fixture
def driver(threads: ThreadPoolExecutor) -> Iterator[HungDriver]:
    driver = HungDriver()
    yield driver
    driver.may_end.set()


@pytest.fixture
def served(example: Example) -> Node:
    node = make_node(example.bare_metal, name="b1")
    Node.objects.filter(pk=node.pk).update(served_by="t", boot_id="boot")
    return node


def test_syncs_go_on_while_a_probe_hangs(
    served: Node,
    threads: ThreadPoolExecutor,
    driver: HungDriver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = NodeLoop(served, token="t", installation="ours", tick_s=0, submit=threads.submit)
    client = NodeClient(cast("NodeTransport", driver), "ours")
    monkeypatch.setattr(loop, "_ready_client", lambda _node: client)

    assert loop._exchange()
    wait_until(lambda: driver.probes == 1, what="the probe is asked")
    assert loop._exchange()

    assert (driver.syncs, driver.probes) == (2, 1)
    assert cast("NodeClock", loop.clock).boot_id == "boot"
    assert Node.objects.values_list("state", "missed_syncs").get() == ("healthy", 0)


def test_a_node_that_was_away_is_healthy_once_its_inventory_is_there(
    served: Node,
    threads: ThreadPoolExecutor,
    driver: HungDriver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Node.objects.update(state="suspect")
    loop = NodeLoop(served, token="t", installation="ours", tick_s=0, submit=threads.submit)
    client = NodeClient(cast("NodeTransport", driver), "ours")
    monkeypatch.setattr(loop, "_ready_client", lambda _node: client)

    assert loop._exchange()

    words = "It is back; its inventory is awaited."
    assert Node.objects.values_list("state", "state_detail").get() == ("suspect", words)
    loop._probe.is_known = True
    assert loop._exchange()
    assert Node.objects.get().state == "healthy"


def test_a_node_whose_probes_fail_is_drained_as_one_that_starts_nothing(
    served: Node, driver: HungDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.may_end.set()
    monkeypatch.setattr(inventory_probe, "PROBE_AGAIN_S", 0)
    probe = InventoryProbe(
        served.pk, token="t", installation="ours", submit=inventory_probe.at_once
    )
    client = NodeClient(cast("NodeTransport", driver), "ours")

    for _ in range(3):
        probe.start(client)

    node = Node.objects.get()
    assert driver.probes == 3
    assert node.is_draining
    assert node.preflight_failures == 3
    assert not probe.is_known


def test_a_node_that_answers_nothing_is_not_drained_for_its_probe(
    served: Node, driver: HungDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.may_end.set()
    driver.is_away = True
    monkeypatch.setattr(inventory_probe, "PROBE_EVERY_S", 0)
    probe = InventoryProbe(
        served.pk, token="t", installation="ours", submit=inventory_probe.at_once
    )
    client = NodeClient(cast("NodeTransport", driver), "ours")

    for _ in range(3):
        probe.start(client)

    assert driver.probes == 3
    assert Node.objects.values_list("preflight_failures", "is_draining").get() == (0, False)
    assert not probe.is_known


def test_a_probe_of_a_replaced_connection_says_nothing_of_the_node(
    served: Node, threads: ThreadPoolExecutor, driver: HungDriver
) -> None:
    first, second = HungDriver(), driver
    probe = InventoryProbe(served.pk, token="t", installation="ours", submit=threads.submit)
    probe.start(NodeClient(cast("NodeTransport", first), "ours"))
    wait_until(lambda: first.probes == 1, what="the first is asked")
    under_way = probe._under_way
    assert under_way is not None
    later = NodeClient(cast("NodeTransport", second), "ours")
    probe.start(later)
    first.may_end.set()
    under_way.result()

    assert Node.objects.get().preflight_failures == 0
    probe.start(later)
    wait_until(lambda: second.probes == 1, what="the second is asked")
