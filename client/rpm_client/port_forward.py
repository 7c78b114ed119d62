"""Local connections to a port of a running task, all in one stream.

A frame begins with the number of its connection. Each side sends no more bytes of a connection
than the other one gave credit for: one that is not read holds no other up.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

from rpm_client.errors import UnreachableError
from rpm_client.streams import PART_BYTES, TaskStream

# To the task alone; then both ways: bytes, no more bytes, credit for more, and the end with words.
CONNECT, DATA, DATA_END, CREDIT, CLOSE = 48, 49, 50, 51, 52
FROM_TASK = (DATA, DATA_END, CREDIT, CLOSE)
CONNECTIONS = 64
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
            self._listener.close()
            for one in list(self._connections.values()):
                one.end()

    def _accept(self) -> None:
        """The 65th waits until one of the others has ended."""
        number = 0
        with suppress(OSError, UnreachableError):
            while True:
                self._free.acquire()
                local, _ = self._listener.accept()
                number += 1
                one = _Connection(number, local, self._stream, self._forget)
                self._connections[number] = one
                one.start()

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
        self._ways = 2

    def start(self) -> None:
        self._local.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream.send_frame(CONNECT, NUMBER.pack(self._number))
        for way in (self._to_task, self._from_task):
            threading.Thread(target=self._run, args=(way,), daemon=True).start()

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

    def _run(self, way: Callable[[], None]) -> None:
        try:
            way()
        except UnreachableError:
            self.end()
        except OSError:
            self.end()
            with suppress(UnreachableError):
                self._stream.send_frame(CLOSE, NUMBER.pack(self._number))
        finally:
            with self._changed:
                self._ways -= 1
                is_last = not self._ways
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
