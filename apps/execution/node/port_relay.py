"""Carries connections to a port of a task, many in one stream, each with a window of its own.

A frame begins with the connection's number, which the other side chose. Each side sends no more
bytes of a connection than the other one gave credit for: one that is not read blocks no other.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import struct
from typing import Callable

from apps.execution.node import clocks
from apps.execution.node.channel import HEADER
from apps.execution.node.stream_relay import (
    CHUNK_BYTES,
    HELD_BYTES,
    LOOK_MS,
    BrokenStream,
    FrameRelay,
)

# To the node alone; then both ways: bytes, no more bytes, credit for more, and the end with words.
CONNECT, DATA, DATA_END, CREDIT, CLOSE = 48, 49, 50, 51, 52
# More than clients have: one may have ended there whose last bytes are still written here.
CONNECTIONS = 80
# Answers that the other side leaves unread, beyond what is read of the task.
UNREAD_BYTES = 1024 * 1024
# What is read of the task stops at the first, and a frame may begin just before that.
OUTPUT_BYTES = HELD_BYTES + HEADER.size + CHUNK_BYTES
WINDOW_BYTES = 256 * 1024
NUMBER = struct.Struct("!I")
AMOUNT = struct.Struct("!II")
ADDRESS = "127.0.0.1"


class _Connection:
    """One connection to the port, and what is on its way there."""

    def __init__(self, number: int, port: int) -> None:
        self.number = number
        self.socket = socket.socket()
        self.is_connected = False
        # Bytes for the task; and those that it took, without credit for them yet.
        self.input = bytearray()
        self.taken = 0
        self.is_input_ending = False
        self.has_input = True
        # How many bytes of the task the other side takes.
        self.credit = WINDOW_BYTES
        self.has_output = True
        self.socket.settimeout(0)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.error = self.socket.connect_ex((ADDRESS, port))

    def events(self, *, can_read: bool) -> int:
        if not self.is_connected:
            return select.POLLOUT
        wanted = select.POLLOUT if self.input and self.has_input else 0
        if can_read and self.may_be_read:
            wanted |= select.POLLIN
        return wanted

    @property
    def may_be_read(self) -> bool:
        return self.has_output and self.credit > 0

    @property
    def is_over(self) -> bool:
        return not self.has_output and not self.has_input


class PortRelay(FrameRelay):
    """Between descriptors 0 and 1 and connections to a port of the network that this is in."""

    def __init__(
        self, number: int, received: bytes, port: int, is_over: Callable[[], bool]
    ) -> None:
        super().__init__(number, received, is_over)
        self._port = port
        # The one that was read last is the last one.
        self._connections: dict[int, _Connection] = {}

    def run(self) -> bool:
        """Relay until the task is over; False where the other side has left.

        Raises:
            BrokenStream: it sent something else than frames of such a stream.
        """
        self._take_frames()
        look_at = clocks.uptime_s()
        while True:
            ready = self._wait()
            if not self._move_frames(ready):
                return False
            for one in list(self._connections.values()):
                events = ready.get(one.socket.fileno(), 0)
                if events:
                    self._move(one, events)
            if clocks.uptime_s() >= look_at:
                look_at = clocks.uptime_s() + LOOK_MS / 1000
                if self._is_over():
                    return self._flush()

    def _can_read(self) -> bool:
        return len(self._output) < HELD_BYTES

    def _wait(self) -> dict[int, int]:
        can_read = self._can_read()
        poll = select.poll()
        # Whatever is held: all that may come has credit.
        poll.register(0, select.POLLIN)
        poll.register(1, select.POLLOUT if self._output else 0)
        for one in self._connections.values():
            events = one.events(can_read=can_read)
            # Without one, what has ended would be said again and again.
            if events:
                poll.register(one.socket, events)
        return dict(poll.poll(LOOK_MS))

    def _take_frame(self, kind: int, content: bytes) -> None:
        if len(content) < NUMBER.size or len(self._output) > OUTPUT_BYTES + UNREAD_BYTES:
            raise BrokenStream("a frame of %d bytes" % len(content))
        (number,) = NUMBER.unpack_from(content)
        if kind == CONNECT:
            self._connect(number)
            return
        one = self._connections.get(number)
        # That it has ended crosses what was sent to it.
        if one is not None:
            self._take_frame_of(one, kind, content)

    def _take_frame_of(self, one: _Connection, kind: int, content: bytes) -> None:
        if kind == DATA:
            self._take_data(one, content[NUMBER.size :])
        elif kind == DATA_END:
            one.is_input_ending = True
            self._write_input(one)
        elif kind == CREDIT and len(content) == AMOUNT.size:
            one.credit += AMOUNT.unpack(content)[1]
            if one.credit > WINDOW_BYTES:
                raise BrokenStream("credit for %d bytes" % one.credit)
        elif kind == CLOSE:
            self._drop(one)
        else:
            raise BrokenStream("a frame of kind %d with %d bytes" % (kind, len(content)))

    def _connect(self, number: int) -> None:
        if number in self._connections:
            raise BrokenStream("connection %d is open" % number)
        if len(self._connections) >= CONNECTIONS:
            self._put_words(number, "%d connections are open already" % CONNECTIONS)
            return
        one = self._connections[number] = _Connection(number, self._port)
        if one.error not in (0, errno.EINPROGRESS):
            self._close(one, one.error)

    def _take_data(self, one: _Connection, content: bytes) -> None:
        if len(one.input) + one.taken + len(content) > WINDOW_BYTES:
            raise BrokenStream("more bytes than there is credit for")
        if one.has_input and not one.is_input_ending:
            one.input += content
            self._write_input(one)

    def _move(self, one: _Connection, events: int) -> None:
        if not one.is_connected:
            error = one.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                self._close(one, error)
                return
            one.is_connected = True
        if events & ~select.POLLOUT and one.may_be_read and self._can_read():
            self._read_output(one)
        self._write_input(one)

    def _read_output(self, one: _Connection) -> None:
        try:
            content = one.socket.recv(min(one.credit, CHUNK_BYTES - NUMBER.size))
        except BlockingIOError:
            return
        except OSError as error:
            self._close(one, error.errno or 0)
            return
        number = NUMBER.pack(one.number)
        if content:
            one.credit -= len(content)
            self._connections[one.number] = self._connections.pop(one.number)
            self._put(DATA, number + content)
            return
        one.has_output = False
        self._put(DATA_END, number)

    def _write_input(self, one: _Connection) -> None:
        if not one.is_connected or one.number not in self._connections:
            return
        try:
            if one.input and one.has_input:
                count = one.socket.send(one.input)
                del one.input[:count]
                one.taken += count
            if one.is_input_ending and not one.input and one.has_input:
                one.has_input = False
                one.socket.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError as error:
            self._close(one, error.errno or 0)
            return
        if one.taken >= WINDOW_BYTES // 4:
            self._put(CREDIT, AMOUNT.pack(one.number, one.taken))
            one.taken = 0
        if one.is_over:
            self._drop(one)

    def _close(self, one: _Connection, error: int) -> None:
        # One that was there ends as such connections do.
        words = "" if one.is_connected else os.strerror(error)
        if error == errno.ECONNREFUSED:
            words = "nothing listens on %s:%d in the task" % (ADDRESS, self._port)
        self._put_words(one.number, words)
        self._drop(one)

    def _put_words(self, number: int, words: str) -> None:
        self._put(CLOSE, NUMBER.pack(number) + words.encode())

    def _drop(self, one: _Connection) -> None:
        del self._connections[one.number]
        with contextlib.suppress(OSError):
            one.socket.close()
