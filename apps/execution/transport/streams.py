"""The server's side of a stream: one helper program, which carries one command's bytes.

Frames are those of `apps/execution/node/channel.py`, kinds those of `stream_relay.py` there. SSH's
own windows hold back the faster end. What a node sends is bounded as it is for exchanges.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Final, NamedTuple

import msgspec
import paramiko

from apps.execution.node.channel import ANSWER, GREETING, HEADER, OPENING, STREAM
from apps.execution.node.port_relay import CLOSE, CREDIT, DATA, DATA_END
from apps.execution.node.stream_relay import CHUNK_BYTES, END, ERRORS, OUTPUT
from apps.execution.protocol import answers
from apps.execution.protocol.requests import StreamRequest, encode
from apps.execution.protocol.streams import StreamAnswer, StreamEnd
from apps.execution.transport.base import ExchangeFailed, TransportError, Unreachable
from apps.execution.transport.channel import Deadline, HelperPipes
from apps.execution.transport.local import LocalTransport
from apps.execution.transport.ssh import SshTransport

OPEN_TIMEOUT_S: Final = 30.0
ANSWER_BYTES: Final = 64 * 1024
NUMBER: Final = 1
# An earlier helper says of the verb that it is none of its own.
UNKNOWN_VERB: Final = "verb:"
OLD_HELPER: Final = (
    "The node's helper is of an older version and has no streams. It is replaced when the node "
    "connects again."
)

_OF_COMMANDS: Final = frozenset({OUTPUT, ERRORS, END})
_OF_PORTS: Final = frozenset({DATA, DATA_END, CREDIT, CLOSE, END})
_FAILURES = (paramiko.SSHException, OSError, EOFError, ValueError)


class StreamRefused(Exception):
    """The node did not begin it; the words are for people."""


class StreamFrame(NamedTuple):
    """Its kind, and its bytes."""

    kind: int
    content: bytes


class NodeStream:
    """One open stream. One thread receives, one sends, and any closes."""

    def __init__(self, pipes: HelperPipes, closed: Callable[[], None]) -> None:
        self._pipes = pipes
        self._closed = closed
        self._received = bytearray()
        self._sending = threading.Lock()
        self._kinds = _OF_COMMANDS

    def begin(self, command: str, request: StreamRequest) -> None:
        """Start the helper and wait until it has begun the stream.

        Raises:
            TransportError: it was not reached.
            StreamRefused: it was, and did not begin it.
        """
        content = encode(request)
        if request.kind == "port":
            self._kinds = _OF_PORTS
        try:
            with Deadline(monotonic() + OPEN_TIMEOUT_S, self.close):
                self._pipes.exec_command(command)
                self._pipes.sendall(OPENING + HEADER.pack(NUMBER, STREAM, len(content)) + content)
                greeting = self._frame(ANSWER_BYTES)
                answer = self._frame(ANSWER_BYTES) if greeting is not None else None
        except _FAILURES as error:
            raise Unreachable(f"the stream does not begin: {error}") from error
        if greeting is None or answer is None or greeting[:2] != (GREETING, ANSWER):
            raise Unreachable("the stream does not begin: the helper gave no answer")
        if answer[:2] != (NUMBER, ANSWER):
            raise StreamRefused(answer[2].decode(errors="replace"))
        begun_check(answer[2])

    def receive(self) -> StreamFrame | None:
        """The next frame; None where the connection has ended.

        Raises:
            TransportError: what came is no frame of a stream.
        """
        try:
            frame = self._frame(CHUNK_BYTES)
        except _FAILURES:
            return None
        if frame is None:
            return None
        if frame[0] != NUMBER or frame[1] not in self._kinds:
            raise ExchangeFailed("the node sent something else than a stream")
        return StreamFrame(frame[1], frame[2])

    def send(self, kind: int, content: bytes) -> None:
        """Wait until the node's window takes it.

        Raises:
            Unreachable: the connection has ended.
        """
        try:
            with self._sending:
                self._pipes.sendall(HEADER.pack(NUMBER, kind, len(content)) + content)
        except _FAILURES as error:
            raise Unreachable(f"cut: {error}") from error

    def close(self) -> None:
        """End it; the helper there ends all that it has started."""
        # First: to close a session, paramiko waits for a node that takes nothing more.
        self._closed()
        with suppress(*_FAILURES):
            self._pipes.close()

    def _frame(self, most: int) -> tuple[int, int, bytes] | None:
        while True:
            if len(self._received) >= HEADER.size:
                number, kind, size = HEADER.unpack_from(self._received)
                if size > most:
                    raise ExchangeFailed(f"a frame of {size} bytes")
                end = HEADER.size + size
                if len(self._received) >= end:
                    content = bytes(self._received[HEADER.size : end])
                    del self._received[:end]
                    return number, kind, content
            part = self._pipes.recv(CHUNK_BYTES)
            if not part:
                return None
            self._received += part


def stream_open(
    transport: SshTransport | LocalTransport, request: StreamRequest, *, is_own: bool = False
) -> NodeStream:
    """Begin a stream in a session of its own.

    Args:
        is_own: the connection is for nothing else, and is closed with it.

    Raises:
        TransportError: the node was not reached.
        StreamRefused: it did not begin it.
    """
    pipes, command = transport.open_pipes(timeout_s=OPEN_TIMEOUT_S)
    stream = NodeStream(pipes, transport.close if is_own else _leave_open)
    try:
        stream.begin(command, request)
    except (TransportError, StreamRefused):
        stream.close()
        raise
    return stream


def _leave_open() -> None:
    """Others use its connection."""


def end_of(content: bytes) -> StreamEnd:
    """How it ended, in the node's words; unknown where they make no sense."""
    try:
        return msgspec.json.decode(content, type=StreamEnd)
    except msgspec.MsgspecError:
        return StreamEnd()


def begun_check(content: bytes) -> None:
    """Raise unless the answer says that it has begun.

    Raises:
        ExchangeFailed: it makes no sense.
        StreamRefused: the node did not begin it.
    """
    try:
        _, answer = answers.decode(content, StreamAnswer)
    except answers.MalformedAnswer as error:
        raise ExchangeFailed(f"the node's answer makes no sense: {error}") from error
    if isinstance(answer, answers.Refusal):
        is_old = answer.code == "invalid" and answer.detail.startswith(UNKNOWN_VERB)
        raise StreamRefused(OLD_HELPER if is_old else answer.detail)
