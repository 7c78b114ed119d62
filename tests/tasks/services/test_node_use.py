"""Samples of nodes: each moment counts once, within bounds, for two weeks."""

from datetime import UTC, datetime, timedelta

import pytest

from apps.nodes.models import Node
from apps.tasks.models import NodeUse
from apps.tasks.selectors.node_use import NodeUseStep, node_use_steps
from apps.tasks.services.gpu_use import device_samples_record
from apps.tasks.services.node_use import MachineRates, MachineSample
from apps.tasks.services.retention import Retention, expired_remove
from tests.allocation.state import make_node
from tests.people import Example

pytestmark = pytest.mark.django_db

BEGIN = datetime(2026, 3, 1, 10, 3, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
BUSY = MachineSample(memory_mb=4_000, disk_mb=70, rates=MachineRates(80, 1_000, 10))


@pytest.fixture
def node(example: Example) -> Node:
    return make_node(example.h100, name="h1")


def sample(node: Node, minutes: float, machine: MachineSample = BUSY) -> None:
    device_samples_record(node, [], {}, machine=machine, now=BEGIN + minutes * MINUTE)


def test_five_minutes_have_means_and_the_most_of_the_disk(node: Node) -> None:
    sample(node, 0)
    sample(node, 1)
    sample(node, 2, MachineSample(memory_mb=2_000, disk_mb=90, rates=None))
    sample(node, 3, MachineSample(6_000, 10, MachineRates(20, 3_000, 30)))

    assert node_use_steps(node, since=BEGIN - MINUTE * 5) == [
        NodeUseStep(BEGIN - 3 * MINUTE, 80, 3_000, 90, 1_000, 10),
        NodeUseStep(BEGIN + 2 * MINUTE, 20, 6_000, 10, 3_000, 30),
    ]


def test_an_absence_and_a_clock_that_goes_back_count_nothing_twice(node: Node) -> None:
    for minutes in (0, 1, 0.5, 1, 61):
        sample(node, minutes)

    assert sum(NodeUse.objects.values_list("sampled_ms", flat=True)) == 3 * 60_000


def test_whatever_a_node_says_can_be_stored(node: Node) -> None:
    nonsense = MachineSample(2**53, 2**53, MachineRates(10**6, 2**62, 2**62))
    for minutes in range(6):
        sample(node, minutes, nonsense)

    [*_, last] = node_use_steps(node, since=BEGIN)
    assert (last.cpu_percent, last.memory_mb, last.received) == (100, 2**31, 2**40)


def test_samples_are_kept_for_two_weeks(node: Node) -> None:
    for minutes in range(10):
        sample(node, minutes)
    for_ever = Retention(logs=None, tasks=None)
    later = BEGIN + timedelta(days=14)

    assert expired_remove(for_ever, now=later - 4 * MINUTE).samples == 0
    assert expired_remove(for_ever, now=later).samples == 1
    assert NodeUse.objects.count() == 2
