"""The schedule: the same for the same seed, every class in it, nothing hit twice at once."""

from collections import Counter
from itertools import combinations, pairwise

import pytest

from tests.chaos.fault_classes import BY_NAME, CLASSES
from tests.chaos.faults import INJECTORS
from tests.chaos.recovery import Span, covered_s, recoveries
from tests.chaos.schedule import counts, make_flaps, make_schedule, parse_fault
from tests.chaos.world import target_names

TARGETS = target_names(podman_nodes=2, process_nodes=4)


def test_the_same_seed_gives_the_same_schedule() -> None:
    first = make_schedule(seed=7, seconds=600, count=300, targets=TARGETS)

    assert make_schedule(seed=7, seconds=600, count=300, targets=TARGETS) == first
    assert make_schedule(seed=8, seconds=600, count=300, targets=TARGETS) != first


@pytest.mark.parametrize(("seconds", "count"), [(600, 300), (60, 55)])
def test_every_class_is_in_it_and_faults_overlap(seconds: float, count: int) -> None:
    faults = make_schedule(seed=3, seconds=seconds, count=count, targets=TARGETS)

    assert len(faults) == count
    assert set(counts(faults)) == set(BY_NAME)
    overlaps = [a for a, b in combinations(faults, 2) if a.at_s <= b.at_s < a.until_s]
    assert len(overlaps) > count / 4


def test_nothing_is_hit_twice_in_one_way_at_once() -> None:
    faults = make_schedule(seed=5, seconds=600, count=300, targets=TARGETS)

    for first, second in combinations(faults, 2):
        if BY_NAME[first.name].channel == BY_NAME[second.name].channel:
            both = {first.target, second.target}
            is_same = first.target == second.target or "control" in both
            assert not is_same or second.at_s > first.until_s


def test_a_class_that_has_no_time_left_gives_its_turn_to_another() -> None:
    names = ["control-away", "worker-kill", "flap"]

    faults = make_schedule(seed=1, seconds=60, count=60, targets=TARGETS, names=names)

    assert len(faults) == 60
    assert set(counts(faults)) == set(names)


def test_a_run_without_time_for_its_faults_is_refused() -> None:
    with pytest.raises(ValueError, match="no time"):
        make_schedule(seed=1, seconds=5, count=300, targets=TARGETS, names=["redis-kill"])


def test_flaps_are_spread_over_the_nodes_and_never_meet_on_one() -> None:
    flaps = make_flaps(seed=1, count=1000, nodes=["a", "b"])

    assert Counter(flap.target for flap in flaps) == {"a": 500, "b": 500}
    assert all(0.3 <= flap.lasts_s <= 4 for flap in flaps)
    for node in ("a", "b"):
        own = [flap for flap in flaps if flap.target == node]
        assert all(later.at_s > earlier.until_s for earlier, later in pairwise(own))


def test_a_fault_is_read_back_as_it_prints() -> None:
    faults = make_schedule(seed=1, seconds=60, count=55, targets=TARGETS)

    assert tuple(parse_fault(str(fault)) for fault in faults) == faults
    with pytest.raises(ValueError, match="no class"):
        parse_fault("1:earthquake:node-1:2")


def test_every_class_can_be_done() -> None:
    assert set(INJECTORS) == {one.name for one in CLASSES}


def test_recovery_counts_only_time_in_which_nothing_else_held_it() -> None:
    spans = [Span("partition", "a", 0, 10), Span("sshd-kill", "a", 12, 15)]
    signs = {"node:a": [5.0, 16.0], "node:b": [11.0]}

    found = recoveries(spans, signs, until_s=100)

    assert [one.seconds for one in found] == [16 - 10 - 3, 1]
    assert {one.slowest for one in found} == {"node:a"}


def test_overlapping_spans_are_counted_once() -> None:
    spans = [Span("flap", "a", 1, 4), Span("flap", "a", 2, 6), Span("flap", "a", 9, 20)]

    assert covered_s(spans, 0, 10) == 5 + 1
