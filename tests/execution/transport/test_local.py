"""Many requests through one helper on this machine, and its end with whatever ends it."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from apps.execution.protocol.outcomes import Answered, NodeUnreachable
from apps.execution.protocol.requests import ProbeRequest, SyncRequest
from apps.execution.transport.base import TransportError
from apps.execution.transport.local import LocalTransport
from tests.execution.nodes import INSTALLATION, TestedNode, installed_local, member_of
from tests.services.ports import wait_until
from tests.services.sshd import helpers_of, kill_helpers
from tests.services.timeouts import scale_timeout

# Starts a helper, says so, and waits to be killed.
HOLDER = """
import sys, time
from apps.execution.transport.local import LocalTransport
transport = LocalTransport(sys.argv[1])
transport.has_channel = True
transport.exchange(b"{}", timeout_s=30)
print("started", flush=True)
time.sleep(300)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[str]:
    home = str(tmp_path / "home")
    yield home
    kill_helpers(home)


@pytest.fixture
def node(home: str) -> Iterator[TestedNode]:
    found = installed_local(home)
    assert isinstance(found.client.transport, LocalTransport)
    found.client.transport.has_channel = True
    yield found
    found.client.transport.close()


def sync(node: TestedNode, **fields: object) -> object:
    return node.client.sync(SyncRequest(installation=INSTALLATION, **fields))  # type: ignore[arg-type]  # the helper checks each field


def test_one_program_answers_many_requests(node: TestedNode, home: str) -> None:
    node.sync()
    before = helpers_of(home)

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda _: sync(node), range(32)))

    assert [type(one) for one in outcomes] == [Answered] * 32
    assert len(before) == 1
    wait_until(lambda: helpers_of(home) == before, what="the children's end")


def test_a_killed_helper_fails_what_is_under_way_and_is_replaced(
    node: TestedNode, home: str
) -> None:
    request = node.launch_request("sleep", "300")
    assert isinstance(node.client.launch(request), Answered)
    node.wait_for(member_of(request), lambda one: one.state == "running")
    others = set(helpers_of(home))

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sync, node, seen=node.seen, wait_s=30)
        wait_until(lambda: set(helpers_of(home)) > others, what="the request's process")
        transport = node.client.transport
        assert isinstance(transport, LocalTransport)
        assert transport._helper is not None
        transport._helper._cut()
        outcome = waiting.result(scale_timeout(20))

    assert isinstance(outcome, NodeUnreachable)
    assert outcome.may_have_arrived
    (member,) = node.sync().members
    assert member.state == "running"
    node.stop(member_of(request), is_kill=True)
    node.wait_for_exit(member_of(request))


def test_another_helper_takes_over_once_what_is_under_way_is_answered(
    node: TestedNode, home: str
) -> None:
    node.sync()
    (first,) = helpers_of(home)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sync, node, seen=node.seen, wait_s=2)
        wait_until(lambda: len(helpers_of(home)) == 2, what="the request's process")
        node.client.transport.retire_helper()  # type: ignore[attr-defined]  # a local one
        node.sync()
        assert isinstance(waiting.result(scale_timeout(20)), Answered)

    wait_until(lambda: len(helpers_of(home)) == 1, what="the end of the first")
    assert helpers_of(home) != [first]


def test_a_closed_transport_has_no_helper_and_starts_none(node: TestedNode, home: str) -> None:
    node.sync()
    node.client.transport.close()

    outcome = node.client.probe(ProbeRequest(installation=INSTALLATION))

    assert outcome == NodeUnreachable("the connection was closed here", may_have_arrived=False)
    wait_until(lambda: helpers_of(home) == [], what="the end of the helper")


def test_a_helper_ends_with_the_process_that_started_it(home: str) -> None:
    installed_local(home)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, home], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"started\n"
    assert len(helpers_of(home)) == 1

    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    holder.stdout.close()

    wait_until(lambda: helpers_of(home) == [], what="the end of the helper")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import sys; sys.exit('broken')", "the helper ended: broken"),
        ("import time; time.sleep(300)", "does not answer in time"),
    ],
)
def test_a_helper_that_does_not_start_is_reported_and_leaves_nothing(
    home: str, program: str, words: str
) -> None:
    (Path(home) / "helper").mkdir(parents=True)
    (Path(home) / "helper" / "__main__.py").write_text(program)
    transport = LocalTransport(home)
    transport.has_channel = True

    with pytest.raises(TransportError, match=words):
        transport.exchange(b"{}", timeout_s=2)

    wait_until(lambda: helpers_of(home) == [], what="the end of the helper")


def test_helpers_that_come_and_go_leave_nothing_open(node: TestedNode) -> None:
    node.sync()
    transport = node.client.transport
    assert isinstance(transport, LocalTransport)
    before = len(os.listdir("/proc/self/fd"))
    gc.disable()
    try:
        for _ in range(5):
            transport.retire_helper()
            node.sync()
        wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before, what="closed pipes")
    finally:
        gc.enable()
