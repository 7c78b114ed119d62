"""Leases in the database: written before they are sent, and judged by time that passes."""

import time

import pytest
from pytest_django.fixtures import Settings

from apps.accounts.models import User
from apps.events.models import Event
from apps.execution.leases import NodeClock
from apps.execution.services.lease_renewal import leases_expire, leases_renew
from apps.execution.services.node_ownership import NotServing
from apps.execution.services.reports import members_of
from apps.nodes.models import Node
from apps.policies.models import Queue
from apps.tasks.models import Attempt, Member, Task
from tests.allocation.state import make_node
from tests.execution.leased_task import start_leased
from tests.people import Example

LEASE_S = 100


@pytest.fixture
def node(example: Example, settings: Settings) -> Node:
    settings.LEASE_S = LEASE_S
    return make_node(example.bare_metal, name="b1", boot_id="boot", served_by="me")


@pytest.fixture
def leased(node: Node, example: Example, alice: User) -> Attempt:
    """Runs until 1050 on the node's clock."""
    return start_leased(alice, example.dev_queue, until_s=1050.0)


def clock(uptime_s: float, *, ago_s: float = 0.0, boot: str = "boot") -> NodeClock:
    return NodeClock(boot, uptime_s, time.monotonic() - ago_s)


def states(attempt: Attempt) -> tuple[str, str]:
    attempt.refresh_from_db()
    return str(attempt.state), str(Task.objects.get().state)


def until() -> float | None:
    return Member.objects.get().lease_until_s


def test_a_lease_that_runs_short_is_longer_in_the_database_before_the_node_hears(
    node: Node, leased: Attempt
) -> None:
    (renewal,) = leases_renew(node, members_of(node), clock(1000.0), "me")

    assert renewal.until_s == until() == 1000 + (LEASE_S - 1) / 1.01
    assert (renewal.task_id, renewal.generation, renewal.rank) == (str(leased.task_id), 1, 0)


def test_the_node_hears_again_of_what_it_may_not_have_heard(node: Node, leased: Attempt) -> None:
    first = leases_renew(node, members_of(node), clock(1000.0), "me")

    assert leases_renew(node, members_of(node), clock(1001.0), "me") == first


def test_what_was_given_up_meanwhile_is_granted_nothing(node: Node, leased: Attempt) -> None:
    stale = members_of(node)
    leases_expire(node, clock(1000.0, ago_s=200), "me")

    assert leases_renew(node, stale, clock(1049.0), "me") == ()
    assert until() == 1050.0


def test_nobody_renews_for_a_node_that_another_process_serves(node: Node, leased: Attempt) -> None:
    Node.objects.update(served_by="another")

    with pytest.raises(NotServing):
        leases_renew(node, members_of(node), clock(1000.0), "me")

    assert until() == 1050.0


def test_a_lease_of_another_boot_is_neither_renewed_nor_judged(node: Node, leased: Attempt) -> None:
    assert leases_renew(node, members_of(node), clock(5.0, boot="next"), "me") == ()
    assert leases_expire(node, clock(5.0, ago_s=9999, boot="next"), "me") is None

    assert states(leased) == ("running", "running")


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        pytest.param("requeue", ("lost", "queued"), id="requeue"),
        pytest.param("fail", ("lost", "failed"), id="fail"),
        # It has its lease from when the queue said otherwise, and the node keeps to it.
        pytest.param("wait", ("lost", "queued"), id="changed to wait"),
    ],
)
def test_work_whose_lease_is_over_is_lost(
    node: Node, leased: Attempt, policy: str, want: tuple[str, str]
) -> None:
    Queue.objects.update(on_node_loss=policy)
    # 50 s were left when the node was last heard.
    left_s = leases_expire(node, clock(1000.0, ago_s=51.0), "me")
    assert left_s is not None
    assert 0 < left_s < 1
    assert states(leased) == ("running", "running")

    assert leases_expire(node, clock(1000.0, ago_s=51.6), "me") is None

    assert states(leased) == want
    assert Member.objects.get().released_at is not None
    node.refresh_from_db()
    assert node.state == "suspect"
    event = Event.objects.get(kind=f"task.{want[1]}", data__cause="node_loss")
    assert event.data["generation"] == 1


def test_a_member_without_a_lease_is_never_given_up(
    node: Node, leased: Attempt, example: Example, alice: User
) -> None:
    Member.objects.update(boot_id="x")
    Member.objects.update(boot_id="boot", lease_until_s=None)

    assert leases_expire(node, clock(1000.0, ago_s=1e6), "me") is None

    assert states(leased) == ("running", "running")


def test_a_task_that_may_not_start_again_fails_with_its_node(node: Node, leased: Attempt) -> None:
    Task.objects.update(is_restartable=False)

    leases_expire(node, clock(1000.0, ago_s=200), "me")

    assert states(leased) == ("lost", "failed")
