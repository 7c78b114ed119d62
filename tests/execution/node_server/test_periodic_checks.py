"""A lease is judged by the silence of its node, not by that of a process that does not ask it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
from pytest_django.fixtures import Settings

from apps.accounts.models import User
from apps.execution.leases import NodeClock
from apps.execution.node_server.loop import NodeLoop
from apps.execution.node_server.periodic_checks import PeriodicChecks
from apps.nodes.models import Node
from apps.tasks.models import Attempt
from tests.allocation.state import make_node
from tests.execution.leased_task import start_leased
from tests.people import Example
from tests.services.ports import wait_until
from tests.services.timeouts import scale_timeout

pytestmark = pytest.mark.django_db


class Loop(NodeLoop):
    """Of a node with nobody behind it: its one exchange lasts until it is let go, and fails.

    Args:
        is_asking: it waits for the node, not for this machine.
    """

    def __init__(self, node: Node, *, is_asking: bool) -> None:
        super().__init__(node, token="me", installation="ours", tick_s=0)
        self.has_begun, self.may_end = threading.Event(), threading.Event()
        self._is_asking = is_asking
        # Last heard when 50 s of the lease were left, and that long ago.
        self.last_clock = NodeClock("boot", 1000.0, time.monotonic() - 60)

    def _exchange(self) -> bool:
        with self._exchange_under_way() if self._is_asking else nullcontext():
            self.has_begun.set()
            self.may_end.wait(scale_timeout(60))
        return False


@contextmanager
def running(loop: Loop) -> Iterator[Loop]:
    loop.thread.start()
    assert loop.has_begun.wait(scale_timeout(30))
    yield loop
    loop.stop()
    loop.may_end.set()
    loop.thread.join(scale_timeout(30))


@pytest.fixture
def leased(example: Example, alice: User, settings: Settings) -> Attempt:
    """Runs until 1050 on the node's clock."""
    settings.LEASE_S = 20
    make_node(example.bare_metal, name="b1", boot_id="boot", served_by="me")
    return start_leased(alice, example.dev_queue, until_s=1050.0)


def state_after_checks(attempt: Attempt, loop: Loop) -> str:
    PeriodicChecks("me").run_checks({loop.node_id: loop})
    attempt.refresh_from_db()
    return str(attempt.state)


def test_a_process_that_had_no_time_to_ask_gives_up_nothing(leased: Attempt) -> None:
    """It had: the node had a result by then, which was thrown away, and the task ran again."""
    with running(Loop(Node.objects.get(), is_asking=False)) as loop:
        assert state_after_checks(leased, loop) == "running"

        # It has asked now, and heard nothing.
        loop.may_end.set()
        wait_until(lambda: loop.is_unanswered, what="the exchange fails")

        assert state_after_checks(leased, loop) == "lost"


def test_an_answer_that_is_long_overdue_is_none(leased: Attempt) -> None:
    with running(Loop(Node.objects.get(), is_asking=True)) as loop:
        wait_until(lambda: loop.is_unanswered, what="the answer is overdue")

        assert state_after_checks(leased, loop) == "lost"
