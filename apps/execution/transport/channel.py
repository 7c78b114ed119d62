"""The server's side of a helper that answers for as long as a connection lasts.

Frames are those of `apps/execution/node/channel.py`. A node may be compromised: nothing that it
sends, or leaves unsent, takes memory or time without a bound.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Protocol

import paramiko
from paramiko.buffered_pipe import BufferedPipe
from paramiko.packet import Packetizer

from apps.core.crash_points import request_chunks
from apps.execution.node.channel import (
    ANSWER,
    FRAME_BYTES,
    GREETING,
    HEADER,
    NOT_BEGUN,
    OPENING,
)
from apps.execution.protocol.bounds import ANSWER_BYTES
from apps.execution.transport.base import ExchangeFailed, TransportError, Unreachable

# Of one node, by its server; those of other processes have connections of their own.
REQUESTS_IN_FLIGHT = 32
# Answers that no process waits for any more; a node that owes more is given up.
GIVEN_UP = 64
# Received, and not read yet. What a node may send without a new window is less.
UNREAD_BYTES = 4 * 1024 * 1024
# SSH packets hold 32 KiB of content, and their own words besides.
PACKET_BYTES = 256 * 1024
CHUNK_BYTES = 256 * 1024
ERROR_BYTES = 2000
CLOSE_TIMEOUT_S = 10.0
# Until a helper that was started says that it answers.
START_TIMEOUT_S = 20.0
CLOSED = "the connection was closed here"


class BoundedPacketizer(Packetizer):
    """Reads no packet that is longer than any SSH server sends; paramiko reads gigabytes."""

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:  # noqa: FBT001, FBT002  # paramiko's signature
        if n > PACKET_BYTES:
            raise paramiko.SSHException(f"a packet of {n} bytes")
        return bytes(super().read_all(n, check_rekey))


class _BoundedPipe(BufferedPipe):  # type: ignore[type-arg]  # generic in its stubs alone
    """What a node sends beyond its window ends the connection; paramiko keeps it all."""

    def feed(self, data: bytes) -> None:
        if len(self) + len(data) > UNREAD_BYTES:
            raise paramiko.SSHException(f"more than {UNREAD_BYTES} bytes sent unasked")
        super().feed(data)


def bound_received(channel: paramiko.Channel) -> None:
    """Keep at most so much of what arrives before it is read."""
    channel.in_buffer = _BoundedPipe()
    channel.in_stderr_buffer = _BoundedPipe()
    if channel.closed or channel.eof_received:
        # By a node that was faster: it ended the earlier buffers.
        channel.in_buffer.close()
        channel.in_stderr_buffer.close()


class HelperPipes(Protocol):
    """A helper's input and output: a session of an SSH connection, or a child process."""

    def exec_command(self, command: str) -> None:
        """Start it; once."""

    def sendall(self, s: bytes) -> object:
        """Give it all of this to read."""

    def recv(self, nbytes: int) -> bytes:
        """What it has written, at most so much; nothing at its end."""

    def recv_stderr_ready(self) -> bool:
        """Whether it said something on its way out."""

    def recv_stderr(self, nbytes: int) -> bytes:
        """That."""

    def close(self) -> None:
        """Let it end."""


class HelperChannel:
    """Requests to one helper program. Once it has ended, it answers nothing ever again.

    Args:
        channel: used by nothing else.
        cut: closes the connection at once.
    """

    def __init__(self, channel: HelperPipes, cut: Callable[[], None]) -> None:
        self._channel = channel
        self._cut = cut
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._waiting: dict[int, Future[bytes]] = {GREETING: Future()}
        self._given_up: set[int] = set()
        self._last = GREETING
        self._reason = ""
        self._is_retired = False
        self._reader = threading.Thread(target=self._read, name="helper-channel", daemon=True)

    @property
    def is_over(self) -> bool:
        return bool(self._reason)

    def start(self, command: str, deadline: float) -> None:
        """Run the helper, and wait until it answers.

        Raises:
            TransportError: it does not.
        """
        greeting = self._waiting[GREETING]
        try:
            with self._ended_by(deadline):
                self._channel.exec_command(command)
                self._channel.sendall(OPENING)
        except (paramiko.SSHException, OSError, EOFError) as error:
            self.end(f"the helper does not start: {error}")
            raise Unreachable(self._reason) from error
        self._reader.start()
        try:
            greeting.result(max(deadline - monotonic(), 0))
        except TimeoutError:
            self.end("the helper does not answer in time")
            raise Unreachable(self._reason) from None
        except TransportError as error:
            raise Unreachable(str(error)) from error

    def request(self, content: bytes, deadline: float) -> bytes:
        """The answer to one request; as many threads as like may ask at once.

        Raises:
            TransportError: there is none, as `may_have_arrived` says.
        """
        if len(content) > FRAME_BYTES:
            raise Unreachable(f"a request of {len(content)} bytes, and {FRAME_BYTES} are the most")
        number, answer = self._begin()
        try:
            self._send(number, content, deadline)
            return answer.result(max(deadline - monotonic(), 0))
        except TimeoutError:
            self._give_up(number)
            raise ExchangeFailed("no answer in time") from None

    def retire(self) -> None:
        """End as soon as what is under way is answered; nothing else is asked of it."""
        self._is_retired = True
        self._end_if_retired()

    def end(self, reason: str) -> None:
        """Fail all that is under way for this reason, unless another was first.

        The connection ends with it: a thread may be in the middle of a write, which nothing else
        interrupts.
        """
        if self._fail(reason):
            self._cut()

    def _fail(self, reason: str) -> bool:
        """Whether it is the first reason."""
        with self._lock:
            if self._reason:
                return False
            self._reason = reason
            waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer.set_exception(ExchangeFailed(reason))
        return True

    def _end_if_retired(self) -> None:
        if (
            self._is_retired
            and not self._waiting
            and self._fail("another helper has taken its place")
        ):
            with Deadline(monotonic() + CLOSE_TIMEOUT_S, self._cut):
                self._channel.close()

    def _begin(self) -> tuple[int, Future[bytes]]:
        with self._lock:
            if self._reason:
                raise Unreachable(self._reason)
            if len(self._waiting) >= REQUESTS_IN_FLIGHT:
                raise Unreachable(f"{REQUESTS_IN_FLIGHT} exchanges are under way already")
            self._last += 1
            answer = self._waiting[self._last] = Future()
            return self._last, answer

    def _send(self, number: int, content: bytes, deadline: float) -> None:
        if not self._sending.acquire(timeout=max(deadline - monotonic(), 0)):
            self._withdraw(number)
            raise Unreachable("the node does not take earlier requests")
        try:
            with self._ended_by(deadline):
                pieces = request_chunks(content)
                self._channel.sendall(HEADER.pack(number, 0, len(content)) + next(pieces))
                for piece in pieces:
                    self._channel.sendall(piece)
        except (paramiko.SSHException, OSError, EOFError) as error:
            # The future has this reason, or the one that came before it.
            self.end(f"cut: {error}")
        finally:
            self._sending.release()

    def _ended_by(self, deadline: float) -> "Deadline":
        return Deadline(deadline, partial(self.end, "a request was not taken in time"))

    def _withdraw(self, number: int) -> None:
        with self._lock:
            self._waiting.pop(number, None)

    def _give_up(self, number: int) -> None:
        with self._lock:
            if self._waiting.pop(number, None) is not None:
                self._given_up.add(number)
            owed = len(self._given_up)
        if owed > GIVEN_UP:
            self.end(f"{owed} answers are overdue")
        self._end_if_retired()

    def _read(self) -> None:
        received = bytearray()
        try:
            while part := self._channel.recv(CHUNK_BYTES):
                received += part
                while self._take_frame(received):
                    pass
            reason = self._last_words()
        except (paramiko.SSHException, OSError, EOFError) as error:
            reason = f"cut: {error}"
        except TransportError as error:
            reason = str(error)
        self.end(reason)

    def _take_frame(self, received: bytearray) -> bool:
        """Hand one answer over; False where no whole one has been received.

        Raises:
            ExchangeFailed: it is none of the answers that may come.
        """
        if len(received) < HEADER.size:
            return False
        number, kind, size = HEADER.unpack_from(received)
        if size > ANSWER_BYTES:
            raise ExchangeFailed(f"an answer of more than {ANSWER_BYTES} bytes")
        if number not in self._waiting and number not in self._given_up:
            raise ExchangeFailed("an answer that no request asked for")
        end = HEADER.size + size
        if len(received) < end:
            return False
        content = bytes(received[HEADER.size : end])
        del received[:end]
        self._answered(number, kind, content)
        return True

    def _answered(self, number: int, kind: int, content: bytes) -> None:
        with self._lock:
            answer = self._waiting.pop(number, None)
            self._given_up.discard(number)
        if answer is not None and kind == ANSWER:
            answer.set_result(content)
        elif answer is not None:
            words = content[:ERROR_BYTES].decode(errors="replace").strip()
            answer.set_exception((Unreachable if kind == NOT_BEGUN else ExchangeFailed)(words))
        self._end_if_retired()

    def _last_words(self) -> str:
        words = b""
        if self._channel.recv_stderr_ready():
            words = self._channel.recv_stderr(ERROR_BYTES)
        if not words:
            return "the connection was cut"
        return f"the helper ended: {words.decode(errors='replace').strip()}"


class ChannelTransport:
    """Keeps one running helper; started when first needed, and again after its end.

    `has_channel`: the helper there answers many requests, through one program.
    """

    def __init__(self) -> None:
        self.has_channel = False
        self._starting = threading.Lock()
        self._helper: HelperChannel | None = None
        self._is_closed = False

    def retire_helper(self) -> None:
        """Let the running helper end; the next exchange starts the one that is installed now."""
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.retire()

    def close(self) -> None:
        """Close the connection for good; running exchanges fail."""
        self._is_closed = True
        helper = self._helper
        if helper is not None:
            helper.end(CLOSED)

    def open_pipes(self, *, timeout_s: float) -> tuple[HelperPipes, str]:
        """A helper of its own, and the command that starts it, for what is no exchange.

        Raises:
            Unreachable: there is no connection, or it has as many sessions as sshd allows.
        """
        raise NotImplementedError

    def _ask_helper(self, request: bytes, deadline: float) -> bytes:
        if self._is_closed:
            raise Unreachable(CLOSED)
        return self._running_helper(deadline).request(request, deadline)

    def _running_helper(self, deadline: float) -> HelperChannel:
        """The one program of this connection; started by the first that asks."""
        if not self._starting.acquire(timeout=max(deadline - monotonic(), 0)):
            raise Unreachable("the helper does not start in time")
        try:
            helper = self._helper
            if helper is None or helper.is_over:
                helper, command = self._new_helper(deadline)
                helper.start(command, min(deadline, monotonic() + START_TIMEOUT_S))
                self._helper = helper
            if self._is_closed:
                helper.end(CLOSED)
            return helper
        finally:
            self._starting.release()

    def _new_helper(self, deadline: float) -> tuple[HelperChannel, str]:
        """One that is to be started, and the command that does it."""
        raise NotImplementedError


class Deadline:
    """Calls `overdue` if the block lasts longer: paramiko waits for some things without limit."""

    def __init__(self, deadline: float, overdue: Callable[[], None]) -> None:
        self._timer = threading.Timer(max(deadline - monotonic(), 0), overdue)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


def cut(connection: paramiko.Transport) -> None:
    """Close a connection without waiting for its thread, whatever that waits for."""
    with suppress(OSError):
        connection.sock.shutdown(2)
    connection.close()
