"""Many requests through one helper program, over real sshd nodes."""

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic

import pytest
from msgspec import json
from paramiko import SSHException

from apps.execution.client import NodeClient
from apps.execution.node.channel import FRAME_BYTES, HEADER, IN_FLIGHT, NOT_BEGUN, OPENING
from apps.execution.protocol.outcomes import Answered, NodeUnreachable
from apps.execution.protocol.requests import ProbeRequest, SyncRequest
from apps.execution.transport import channel as channels
from apps.execution.transport.base import TransportError, Unreachable
from apps.execution.transport.ssh import SshTransport
from tests.execution.nodes import INSTALLATION, TestedNode, installed_ssh, member_of
from tests.services.ports import wait_until
from tests.services.sshd import SshdNode, helpers_of
from tests.services.timeouts import scale_timeout

# A helper that reads the opening and greets, and then does as `then` says.
HOSTILE = """
import struct, sys, time
read, write = sys.stdin.buffer.read, sys.stdout.buffer
def send(number, kind, content, size=None):
    size = len(content) if size is None else size
    write.write(struct.pack("!QBI", number, kind, size) + content)
    write.flush()
def request():
    number, _, size = struct.unpack("!QBI", read(13))
    read(size)
    return number
read(14)
send(0, 0, b"hostile")
"""

LATE = """
late = request()
send(request(), 0, b"now")
send(late, 0, b"late")
send(request(), 0, b"then")
time.sleep(60)
"""


@pytest.fixture
def node(ssh_node: SshdNode) -> Iterator[TestedNode]:
    found = installed_ssh(ssh_node)
    assert isinstance(found.client.transport, SshTransport)
    found.client.transport.has_channel = True
    yield found
    found.client.transport.close()


def hostile(ssh_node: SshdNode, then: str) -> SshTransport:
    """A node whose helper does this once it has greeted."""
    home = Path(ssh_node.home)
    (home / "helper").mkdir(parents=True)
    (home / "helper" / "__main__.py").write_text(HOSTILE + then)
    transport = SshTransport(ssh_node.ssh_node())
    transport.has_channel = True
    return transport


def sync(client: NodeClient, **fields: object) -> object:
    return client.sync(SyncRequest(installation=INSTALLATION, **fields))  # type: ignore[arg-type]  # the helper checks each field


def test_one_program_answers_many_requests(ssh_node: SshdNode, node: TestedNode) -> None:
    node.sync()
    before = helpers_of(ssh_node.home)

    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(lambda _: sync(node.client), range(64)))

    assert [type(one) for one in outcomes] == [Answered] * 64
    assert len(before) == 1
    wait_until(lambda: helpers_of(ssh_node.home) == before, what="the children's end")


def test_a_request_that_waits_holds_no_other_up(node: TestedNode) -> None:
    node.sync()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sync, node.client, seen=node.seen, wait_s=30)
        began = node.launch_request("sh", "-c", "sleep 300")
        assert isinstance(node.client.launch(began), Answered)
        outcome = waiting.result(scale_timeout(20))

    assert isinstance(outcome, Answered)
    assert node.stop(member_of(began), is_kill=True) in {"stopping", "exited"}
    node.wait_for_exit(member_of(began))


def test_a_request_whose_process_is_killed_harms_no_other(
    ssh_node: SshdNode, node: TestedNode
) -> None:
    node.sync()
    (program,) = helpers_of(ssh_node.home)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sync, node.client, seen=node.seen, wait_s=30)
        wait_until(lambda: len(helpers_of(ssh_node.home)) == 2, what="the request's process")
        os.kill(next(pid for pid in helpers_of(ssh_node.home) if pid != program), 9)
        outcome = waiting.result(scale_timeout(20))

    assert isinstance(outcome, NodeUnreachable)
    assert "ended with code -9" in outcome.detail
    node.sync()
    assert helpers_of(ssh_node.home) == [program]


def test_a_cut_fails_every_request_for_one_reason_and_ends_nothing_on_the_node(
    ssh_node: SshdNode, node: TestedNode
) -> None:
    request = node.launch_request("sleep", "300")
    node.client.launch(request)
    node.wait_for(member_of(request), lambda one: one.state == "running")

    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(sync, node.client, seen=node.seen, wait_s=30) for _ in range(4)]
        wait_until(lambda: len(helpers_of(ssh_node.home)) >= 6, what="four requests")
        ssh_node.stop()
        outcomes = [one.result(scale_timeout(20)) for one in waiting]
    ssh_node.start()

    assert {type(one) for one in outcomes} == {NodeUnreachable}
    assert len({one.detail for one in outcomes if isinstance(one, NodeUnreachable)}) == 1
    assert all(one.may_have_arrived for one in outcomes if isinstance(one, NodeUnreachable))
    (member,) = node.sync().members
    assert member.state == "running"
    node.stop(member_of(request), is_kill=True)
    node.wait_for_exit(member_of(request))


def test_a_closed_transport_never_connects_again(node: TestedNode) -> None:
    node.sync()
    node.client.transport.close()

    outcome = node.client.probe(ProbeRequest(installation=INSTALLATION))

    assert outcome == NodeUnreachable("the connection was closed here", may_have_arrived=False)


@pytest.mark.parametrize(
    ("then", "words"),
    [
        pytest.param("request(); time.sleep(60)", "no answer in time", id="silent"),
        pytest.param("send(7, 0, b'x'); time.sleep(60)", "no request asked", id="unknown number"),
        pytest.param("send(request(), 0, b'', 2**31)", "more than", id="giant answer"),
        pytest.param(
            "request()\nwhile True: write.write(b'\\0'); write.flush(); time.sleep(0.01)",
            "no request asked|no answer in time",
            id="slow bytes",
        ),
        pytest.param("request(); sys.exit('broken')", "the helper ended: broken", id="it ends"),
        pytest.param("send(request(), 1, b'words')", "words", id="it fails"),
        pytest.param("time.sleep(60)", "not taken in time", id="it reads nothing"),
    ],
)
def test_what_a_hostile_node_does_ends_in_time(ssh_node: SshdNode, then: str, words: str) -> None:
    transport = hostile(ssh_node, then)
    began = monotonic()

    # More than all buffers on the way hold.
    content = b"x" * (FRAME_BYTES if "taken" in words else 10)
    with pytest.raises(TransportError, match=words):
        transport.exchange(content, timeout_s=3)

    assert monotonic() - began < scale_timeout(20)
    transport.close()
    wait_until(
        lambda: "helper-channel" not in {one.name for one in threading.enumerate()},
        what="the reader's end",
    )


def test_more_requests_than_the_bound_are_refused(
    ssh_node: SshdNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "REQUESTS_IN_FLIGHT", 2)
    transport = hostile(ssh_node, "request(); request(); time.sleep(60)")
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(transport.exchange, b"{}", timeout_s=60) for _ in range(2)]
        wait_until(
            lambda: transport._helper is not None and len(transport._helper._waiting) == 2,
            what="two requests",
        )
        with pytest.raises(Unreachable, match="2 exchanges are under way"):
            transport.exchange(b"{}", timeout_s=60)
        transport.close()

        reasons = {str(one.exception(scale_timeout(20))) for one in waiting}

    assert reasons == {"the connection was closed here"}


def test_a_node_that_owes_more_answers_than_the_bound_is_given_up(
    ssh_node: SshdNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "GIVEN_UP", 2)
    transport = hostile(ssh_node, "time.sleep(60)")
    transport._running_helper(monotonic() + scale_timeout(20))

    for _ in range(3):
        with pytest.raises(TransportError, match="no answer in time"):
            transport.exchange(b"{}", timeout_s=0.1)

    assert transport._helper is not None
    assert transport._helper.is_over
    transport.close()


def test_an_answer_that_comes_too_late_is_dropped(ssh_node: SshdNode) -> None:
    transport = hostile(ssh_node, LATE)
    transport._running_helper(monotonic() + scale_timeout(20))

    with pytest.raises(TransportError, match="no answer in time"):
        transport.exchange(b"{}", timeout_s=0.1)

    assert transport.exchange(b"{}", timeout_s=scale_timeout(20)) == b"now"
    assert transport.exchange(b"{}", timeout_s=scale_timeout(20)) == b"then"
    transport.close()


def test_what_a_node_sends_unasked_and_in_one_packet_is_bounded() -> None:
    """The library holds no server to the window that it gave."""
    pipe = channels._BoundedPipe()
    pipe.feed(b"x" * channels.UNREAD_BYTES)

    with pytest.raises(SSHException, match="bytes sent unasked"):
        pipe.feed(b"x")
    with pytest.raises(SSHException, match="a packet of"):
        channels.BoundedPacketizer(socket.socket()).read_all(channels.PACKET_BYTES + 1)


def test_a_request_longer_than_the_bound_is_not_sent(node: TestedNode) -> None:
    transport = node.client.transport

    with pytest.raises(Unreachable, match="are the most"):
        transport.exchange(b"x" * (FRAME_BYTES + 1), timeout_s=scale_timeout(20))
    whole = transport.exchange(b" " * FRAME_BYTES, timeout_s=scale_timeout(60))

    assert b"not JSON" in whole


def test_a_helper_begins_no_more_than_the_bound_at_once(
    ssh_node: SshdNode, node: TestedNode
) -> None:
    """The server's own bound is lower; a helper relies on no server."""
    node.sync()
    request = json.encode(SyncRequest(installation=INSTALLATION, seen=node.seen, wait_s=5))
    frame = HEADER.pack(1, 0, len(request)) + request
    done = subprocess.run(
        ["python3", "-ES", f"{ssh_node.home}/helper"],
        input=OPENING + frame * (IN_FLIGHT + 1),
        capture_output=True,
        check=True,
    )

    (_, _, size) = HEADER.unpack_from(done.stdout)
    refused = HEADER.unpack_from(done.stdout, HEADER.size + size)
    assert refused[1] == NOT_BEGUN
    assert len(done.stdout) == 2 * HEADER.size + size + refused[2]
