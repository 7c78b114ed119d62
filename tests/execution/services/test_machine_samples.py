"""What the counters of a node say, whatever the node says."""

import math

import pytest

from apps.execution.protocol.answers import Clocks, NetworkInterface, NodeInventory
from apps.execution.services.device_samples import MachineCounters
from apps.tasks.services.node_use import MachineRates
from tests.execution.services.test_inventory import inventory


def counters(
    *, busy: int = 0, total: int = 0, received: int = 0, at: float = 0, boot: str = "b"
) -> MachineCounters:
    found = MachineCounters.of(report(busy, total, received), Clocks("1", boot, at, 1.0))
    assert found is not None
    return found


def report(busy: int | None, total: int | None, received: int = 0) -> NodeInventory:
    network = (NetworkInterface("eth0", received, 2 * received, physical=True),)
    return inventory(cpu_busy_ms=busy, cpu_ms=total, network=network)


def test_rates_are_those_since_the_counters_before() -> None:
    before = counters(busy=1_000, total=10_000, received=500, at=100)
    now = counters(busy=31_000, total=130_000, received=60_500, at=160)

    assert now.since(before) == MachineRates(cpu_percent=25, received=1_000, sent=2_000)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param(None, counters(busy=1, total=2, at=60), id="nothing before"),
        pytest.param(counters(at=0), counters(busy=1, total=2, at=60, boot="c"), id="another boot"),
        pytest.param(
            counters(busy=5, total=9), counters(busy=1, total=19, at=60), id="a counter went back"
        ),
        pytest.param(counters(total=9), counters(total=9, at=60), id="no CPU time passed"),
        pytest.param(
            counters(), counters(busy=1, total=2, received=2**62, at=1e-300), id="no time passed"
        ),
    ],
)
def test_there_are_no_rates(before: MachineCounters | None, now: MachineCounters) -> None:
    assert now.since(before) is None


def test_more_work_than_time_is_all_of_the_time() -> None:
    found = counters(busy=2**53, total=10, received=2**62, at=60).since(counters(total=1))

    assert found is not None
    assert found.cpu_percent == 100
    assert math.isfinite(found.received)


def test_bridges_count_only_where_there_is_nothing_else() -> None:
    bridge = NetworkInterface("docker0", 7, 7)
    wire = NetworkInterface("eth0", 3, 3, physical=True)
    clocks = Clocks("1", "b", 1.0, 1.0)
    both, alone = (
        MachineCounters.of(inventory(cpu_ms=1, cpu_busy_ms=1, network=network), clocks)
        for network in ((bridge, wire), (bridge,))
    )

    assert both is not None
    assert alone is not None
    assert (both.received, alone.received) == (3, 7)


def test_an_older_helper_counts_nothing() -> None:
    assert MachineCounters.of(report(None, None), Clocks("1", "b", 1.0, 1.0)) is None
