"""The arithmetic of leases."""

import pytest

from apps.execution.leases import NodeClock, granted_s, is_over, renewed_lease

CLOCK = NodeClock("boot", 1000.0, read_at=50.0)


def test_a_lease_is_known_to_be_over_when_the_node_was_silent_for_its_whole_time() -> None:
    until = CLOCK.uptime_s + granted_s(900)

    assert not is_over(until, CLOCK, at=50 + 899.9)
    assert is_over(until, CLOCK, at=50 + 900.1)


@pytest.mark.parametrize("drift", [0.99, 1.0, 1.01])
def test_it_is_over_on_the_node_first_however_its_clock_goes(drift: float) -> None:
    until = CLOCK.uptime_s + 600
    at = 50.0
    while not is_over(until, CLOCK, at=at):
        at += 0.5

    assert CLOCK.uptime_s + (at - 50) * drift >= until


def test_only_what_runs_short_is_renewed() -> None:
    wanted = CLOCK.uptime_s + granted_s(900)

    assert renewed_lease(CLOCK.uptime_s + 650, CLOCK, lease_s=900) is None
    assert renewed_lease(CLOCK.uptime_s + 550, CLOCK, lease_s=900) == wanted


def test_a_node_that_does_not_answer_is_granted_nothing_more() -> None:
    once = renewed_lease(CLOCK.uptime_s, CLOCK, lease_s=900)
    assert once is not None

    # Whatever the time is here: it counts from what the node last showed.
    assert renewed_lease(once, CLOCK, lease_s=900) is None


def test_planned_work_on_the_control_plane_makes_leases_longer() -> None:
    until = renewed_lease(CLOCK.uptime_s + 890, CLOCK, lease_s=900, at_least_s=7200)

    assert until == CLOCK.uptime_s + 7200
