"""Local connections to a port of a running task, all in one stream.

A frame begins with the number of its connection. Each side sends no more bytes of a connection
than the other one gave credit for: one that is not read blocks no other.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from rpm_client.errors import UnreachableError
from rpm_client.streams import PART_BYTES, TaskStream

# To the task alone; then both ways: bytes, no more bytes, credit for more, and the end with words.
CONNECT, DATA, DATA_END, CREDIT, CLOSE = 48, 49, 50, 51, 52
FROM_TASK = (DATA, DATA_END, CREDIT, CLOSE)
CONNECTIONS = 64
# After a connection that could not be accepted.
RETRY_S = 0.5
WINDOW_BYTES = 256 * 1024
NUMBER = struct.Struct("!I")
AMOUNT = struct.Struct("!II")
HOST = "127.0.0.1"


class PortForward:
    """Listens on a port of 127.0.0.1, and connects what comes there with the task.

    Args:
        stream: of the kind `port`.
        port: 0 is any free one.
        complain: gets the words of connections that fail.

    Raises:
        OSError: the port cannot be listened on.
    """

    def __init__(self, stream: TaskStream, port: int, complain: Callable[[str], None]) -> None:
        self._stream = stream
        self._complain = complain
        self._connections: dict[int, _Connection] = {}
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        self._is_over = threading.Event()
        self._listener = socket.create_server((HOST, port), backlog=CONNECTIONS)
        self.port: int = self._listener.getsockname()[1]

    def run(self) -> None:
        """Forward until the stream ends.

        Raises:
            RefusedError: the server refused it, or closed it.
            UnreachableError: the connection was cut.
        """
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            for part in self._stream.parts(FROM_TASK):
                self._take(part.kind, part.content)
        finally:
            self._is_over.set()
            self._listener.close()
            for one in list(self._connections.values()):
                one.end()

    def _accept(self) -> None:
        """The 65th waits until one of the others has ended."""
        for number in count(1):
            self._free.acquire()
            try:
                local, _ = self._listener.accept()
            except OSError as error:
                # Such as too many open files: the next one may be accepted.
                self._free.release()
                if self._is_over.wait(RETRY_S):
                    return
                self._complain(str(error.strerror))
                continue
            one = _Connection(number, local, self._stream, self._forget)
            self._connections[number] = one
            try:
                one.start()
            except UnreachableError:
                return

    def _forget(self, number: int) -> None:
        if self._connections.pop(number, None) is not None:
            self._free.release()

    def _take(self, kind: int, content: bytes) -> None:
        if len(content) < NUMBER.size:
            return
        one = self._connections.get(NUMBER.unpack_from(content)[0])
        rest = content[NUMBER.size :]
        # That it has ended crosses what was sent to it.
        if one is None:
            return
        if kind == CREDIT and len(content) == AMOUNT.size:
            one.add_credit(AMOUNT.unpack(content)[1])
        elif kind == DATA:
            one.take(rest)
        elif kind == DATA_END:
            one.take_end()
        elif kind == CLOSE:
            if rest:
                self._complain(rest.decode(errors="replace"))
            one.end()


class _Connection:
    """One local connection: a thread for each way."""

    def __init__(
        self,
        number: int,
        local: socket.socket,
        stream: TaskStream,
        forget: Callable[[int], None],
    ) -> None:
        self._number = number
        self._local = local
        self._stream = stream
        self._forget = forget
        self._changed = threading.Condition()
        # Of the task, not written yet; and how many bytes it takes.
        self._output = bytearray()
        self._is_output_ending = False
        self._credit = WINDOW_BYTES
        self._is_over = False
        self._running = 2

    def start(self) -> None:
        # One that has gone already ends as any other.
        with suppress(OSError):
            self._local.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream.send_frame(CONNECT, NUMBER.pack(self._number))
        for carry in (self._to_task, self._from_task):
            threading.Thread(target=self._run, args=(carry,), daemon=True).start()

    def add_credit(self, amount: int) -> None:
        with self._changed:
            self._credit += amount
            self._changed.notify_all()

    def take(self, content: bytes) -> None:
        """Keep bytes of the task until they are written; more than its window ends it."""
        with self._changed:
            self._output += content
            is_too_much = len(self._output) > WINDOW_BYTES
            self._changed.notify_all()
        if is_too_much:
            self.end()

    def take_end(self) -> None:
        with self._changed:
            self._is_output_ending = True
            self._changed.notify_all()

    def end(self) -> None:
        """Close it at once."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        # A thread may wait in it.
        with suppress(OSError):
            self._local.shutdown(socket.SHUT_RDWR)

    def _run(self, carry: Callable[[], None]) -> None:
        try:
            carry()
        except UnreachableError:
            self.end()
        except OSError:
            self.end()
            with suppress(UnreachableError):
                self._stream.send_frame(CLOSE, NUMBER.pack(self._number))
        finally:
            with self._changed:
                self._running -= 1
                is_last = not self._running
            if is_last:
                self._local.close()
                self._forget(self._number)

    def _to_task(self) -> None:
        while True:
            credit = self._wait_for_credit()
            if not credit:
                return
            content = self._local.recv(min(credit, PART_BYTES - NUMBER.size))
            if self._is_over:
                return
            if not content:
                self._stream.send_frame(DATA_END, NUMBER.pack(self._number))
                return
            with self._changed:
                self._credit -= len(content)
            self._stream.send_frame(DATA, NUMBER.pack(self._number) + content)

    def _wait_for_credit(self) -> int:
        """How many bytes the task takes; 0 at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._credit > 0 or self._is_over)
            return 0 if self._is_over else self._credit

    def _from_task(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._output or self._is_output_ending or self._is_over
                )
                if self._is_over:
                    return
                content, self._output = bytes(self._output), bytearray()
            if not content:
                self._local.shutdown(socket.SHUT_WR)
                return
            self._local.sendall(content)
            self._stream.send_frame(CREDIT, AMOUNT.pack(self._number, len(content)))
