"""Connections to ports of a task without a container, frame by frame."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from time import monotonic

import pytest

from apps.execution.node import port_relay
from apps.execution.node.channel import HEADER
from apps.execution.node.port_relay import (
    AMOUNT,
    CLOSE,
    CONNECT,
    CREDIT,
    DATA,
    DATA_END,
    NUMBER,
    WINDOW_BYTES,
)
from apps.execution.node.stream_relay import CHUNK_BYTES, INPUT
from apps.execution.protocol.requests import StreamRequest
from apps.execution.transport.base import Unreachable
from apps.execution.transport.channel import Deadline
from apps.execution.transport.streams import NUMBER as NUMBER_OF_STREAM
from apps.execution.transport.streams import NodeStream, StreamRefused, stream_open
from rpm_client import port_forward
from tests.execution.nodes import INSTALLATION, TestedNode, installed_local, member_of
from tests.services.sshd import kill_helpers
from tests.services.timeouts import scale_timeout

ONE = NUMBER.pack(1)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        found.settimeout(scale_timeout(30))
        yield found


@pytest.fixture
def running(tmp_path: object) -> Iterator[tuple[TestedNode, str]]:
    """A node with a task, and the task's id."""
    home = f"{tmp_path}/home"
    node = installed_local(home)
    launch = node.launch_request("sh", "-c", "echo ready; exec sleep 600")
    node.client.launch(launch)
    node.wait_for_log(member_of(launch), b"ready")
    yield node, launch.task_id
    node.stop(member_of(launch), is_kill=True)
    kill_helpers(home)


def opened(running: tuple[TestedNode, str], port: int) -> NodeStream:
    node, task_id = running
    request = StreamRequest(
        installation=INSTALLATION, task_id=task_id, generation=1, kind="port", port=port
    )
    return stream_open(node.client.transport, request)  # type: ignore[arg-type]  # the local one


@contextmanager
def in_time(stream: NodeStream) -> Iterator[None]:
    """Fail where the node takes and sends nothing more."""
    late = threading.Event()

    def cut() -> None:
        late.set()
        stream.close()

    with Deadline(monotonic() + scale_timeout(60), cut):
        yield
    assert not late.is_set()


def frame(stream: NodeStream) -> tuple[int, bytes]:
    with in_time(stream):
        found = stream.receive()
    assert found is not None
    return found.kind, found.content


def test_each_way_ends_by_itself_and_bytes_give_credit(
    running: tuple[TestedNode, str], listener: socket.socket
) -> None:
    stream = opened(running, listener.getsockname()[1])
    stream.send(CONNECT, ONE)
    stream.send(DATA, ONE + bytes(CHUNK_BYTES - len(ONE)))
    server, _ = listener.accept()
    with server:
        server.settimeout(scale_timeout(30))
        for _ in range(2):
            stream.send(DATA, ONE + bytes(CHUNK_BYTES - len(ONE)))
        stream.send(DATA_END, ONE)
        received = 0
        while part := server.recv(65536):
            received += len(part)
        credit = frame(stream)
        server.sendall(b"late")
        late = frame(stream)

    assert received == 3 * (CHUNK_BYTES - len(ONE))
    assert credit[0] == CREDIT
    assert AMOUNT.unpack(credit[1])[1] >= WINDOW_BYTES // 4
    assert [late, frame(stream)] == [(DATA, ONE + b"late"), (DATA_END, ONE)]
    stream.close()


def test_a_slow_reader_gets_all_bytes_of_many_busy_connections_in_turn(
    running: tuple[TestedNode, str], listener: socket.socket
) -> None:
    numbers = range(1, port_forward.CONNECTIONS + 1)
    rest = 2 * CHUNK_BYTES
    stream = opened(running, listener.getsockname()[1])
    servers = []
    for number in numbers:
        stream.send(CONNECT, NUMBER.pack(number))
        servers.append(listener.accept()[0])
    received = dict.fromkeys(numbers, 0)

    def next_bytes() -> tuple[int, int]:
        kind, content = frame(stream)
        assert kind == DATA
        (number,) = NUMBER.unpack_from(content)
        received[number] += len(content) - NUMBER.size
        return number, len(content) - NUMBER.size

    def write(server: socket.socket) -> None:
        server.sendall(bytes(WINDOW_BYTES + rest))

    with ThreadPoolExecutor(len(numbers)) as many:
        written = many.map(write, servers)
        while any(received[number] < WINDOW_BYTES for number in numbers):
            next_bytes()
        list(written)
    # In one write, so that all are ready to be read at the same time.
    amounts = [AMOUNT.pack(number, CHUNK_BYTES) for number in numbers]
    credit = [HEADER.pack(NUMBER_OF_STREAM, CREDIT, len(one)) + one for one in amounts]
    stream._pipes.sendall(b"".join(credit))
    turns = []
    while any(received[number] < WINDOW_BYTES + rest for number in numbers):
        number, count = next_bytes()
        turns.append(number)
        stream.send(CREDIT, AMOUNT.pack(number, count))
    for server in servers:
        server.close()
    ends = {frame(stream) for _ in numbers}
    stream.close()

    assert set(received.values()) == {WINDOW_BYTES + rest}
    assert set(turns[: len(numbers)]) == set(numbers)
    assert ends == {(DATA_END, NUMBER.pack(number)) for number in numbers}


@pytest.mark.parametrize("wrong", ["more than there is credit for", "twice", "a command's input"])
def test_who_breaks_the_rules_loses_the_stream(
    running: tuple[TestedNode, str], listener: socket.socket, wrong: str
) -> None:
    stream = opened(running, listener.getsockname()[1])
    stream.send(CONNECT, ONE)
    if wrong == "twice":
        stream.send(CONNECT, ONE)
    elif wrong == "a command's input":
        stream.send(INPUT, ONE)
    else:
        # Into a connection that nobody accepts: the kernel holds some of it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with in_time(stream), suppress(Unreachable):
            while True:
                stream.send(DATA, ONE + bytes(CHUNK_BYTES - len(ONE)))

    with in_time(stream):
        while found := stream.receive():
            assert found.kind == CREDIT
    stream.close()


def test_a_port_that_nothing_listens_on_is_named(running: tuple[TestedNode, str]) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        stream = opened(running, port)
        stream.send(CONNECT, ONE)
        found = frame(stream)

    assert found == (CLOSE, ONE + b"nothing listens on 127.0.0.1:%d in the task" % port)
    stream.close()
    with pytest.raises(StreamRefused, match="port"):
        opened(running, 0)


def test_client_and_node_agree() -> None:
    for name in ("CONNECT", "DATA", "DATA_END", "CREDIT", "CLOSE", "WINDOW_BYTES"):
        assert getattr(port_forward, name) == getattr(port_relay, name), name
    assert port_forward.CONNECTIONS < port_relay.CONNECTIONS
