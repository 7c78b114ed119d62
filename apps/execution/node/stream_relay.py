"""Carries bytes between a stream's frames and a process, each way no faster than the other end."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import struct
import termios
from typing import Callable, NamedTuple

from apps.execution.node import clocks
from apps.execution.node.channel import HEADER

# Of the frames to the node, and of those from it.
INPUT, INPUT_END, RESIZE = 16, 17, 18
OUTPUT, ERRORS, END = 32, 33, 34
SIZE = struct.Struct("!HH")
CHUNK_BYTES = 32 * 1024
# Taken from one end and not taken by the other yet, each way.
HELD_BYTES = 256 * 1024
# So often it is looked whether task and process are still there.
LOOK_MS = 250
# Without outputs: it ends in this moment, as a rule.
LOOK_SOON_MS = 10
END_OF_TEXT = b"\x04"


class BrokenStream(Exception):
    """The other side does not follow the rules of streams."""


class Ends(NamedTuple):
    """Descriptors of the process: of a terminal, one and the same.

    `outputs` has the kind of frame by descriptor.
    """

    input: int
    outputs: dict[int, int]
    is_terminal: bool


class FrameRelay:
    """The frames of descriptors 0 and 1, of which the subclass says what they do.

    Args:
        is_over: whether nothing more will come, because the process or its task has ended.
    """

    def __init__(self, number: int, received: bytes, is_over: Callable[[], bool]) -> None:
        self._number = number
        self._received = bytearray(received)
        self._is_over = is_over
        self._output = bytearray()
        for descriptor in (0, 1):
            os.set_blocking(descriptor, False)

    def send_end(self, content: bytes) -> None:
        """The last frame; waits until it is taken."""
        self._put(END, content)
        os.set_blocking(1, True)
        self._write_frames()

    def _take_frame(self, kind: int, content: bytes) -> None:
        raise NotImplementedError

    def _move_frames(self, ready: dict[int, int]) -> bool:
        """Write and read what can be; False where the other side has left."""
        if ready.get(1, 0) & ~select.POLLOUT:
            return False
        try:
            if 1 in ready:
                self._write_frames()
            return 0 not in ready or self._read_frames()
        except (BrokenPipeError, ConnectionResetError):
            return False

    def _read_frames(self) -> bool:
        content = _read(0)
        if content is not None:
            self._received += content
            self._take_frames()
        return content != b""

    def _take_frames(self) -> None:
        while len(self._received) >= HEADER.size:
            _, kind, size = HEADER.unpack_from(self._received)
            if size > CHUNK_BYTES:
                raise BrokenStream("a frame of %d bytes" % size)
            end = HEADER.size + size
            if len(self._received) < end:
                return
            content = bytes(self._received[HEADER.size : end])
            del self._received[:end]
            self._take_frame(kind, content)

    def _put(self, kind: int, content: bytes) -> None:
        self._output += HEADER.pack(self._number, kind, len(content)) + content

    def _write_frames(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._output:
                del self._output[: os.write(1, self._output)]

    def _flush(self) -> bool:
        """Write all that is left; False where the other side has left."""
        while self._output:
            poll = select.poll()
            poll.register(1, select.POLLOUT)
            poll.register(0, select.POLLIN)
            ready = dict(poll.poll())
            if 0 in ready and not _is_there(0):
                return False
            try:
                if 1 in ready:
                    self._write_frames()
            except (BrokenPipeError, ConnectionResetError):
                return False
        return True


class Relay(FrameRelay):
    """Between descriptors 0 and 1 and a process."""

    def __init__(
        self, number: int, received: bytes, ends: Ends, is_over: Callable[[], bool]
    ) -> None:
        super().__init__(number, received, is_over)
        self._ends = ends
        self._input = bytearray()
        self._outputs = dict(ends.outputs)
        self._has_input = True
        self._is_input_ending = False
        for descriptor in (ends.input, *ends.outputs):
            os.set_blocking(descriptor, False)

    def run(self) -> bool:
        """Relay until the process has nothing more to say; False where the other side has left.

        Raises:
            BrokenStream: it sent something else than frames of a stream.
        """
        self._take_frames()
        look_at = clocks.uptime_s()
        while True:
            ready = self._wait()
            if not self._step(ready):
                return False
            # Also while a process that the command left behind goes on writing.
            if not ready or not self._outputs or clocks.uptime_s() >= look_at:
                look_at = clocks.uptime_s() + LOOK_MS / 1000
                if self._is_over():
                    break
        return self._drain()

    def _wait(self) -> dict[int, int]:
        poll = select.poll()
        # That the other side has left is seen however much is held.
        wanted: dict[int, int] = {0: 0, 1: 0}
        if len(self._received) + len(self._input) < HELD_BYTES:
            wanted[0] = select.POLLIN
        if self._output:
            wanted[1] = select.POLLOUT
        if len(self._output) < HELD_BYTES:
            for descriptor in self._outputs:
                wanted[descriptor] = select.POLLIN
        if self._input and self._has_input:
            wanted[self._ends.input] = wanted.get(self._ends.input, 0) | select.POLLOUT
        for descriptor, events in wanted.items():
            poll.register(descriptor, events)
        return dict(poll.poll(LOOK_MS if self._outputs else LOOK_SOON_MS))

    def _step(self, ready: dict[int, int]) -> bool:
        """Move what can be moved; False where the other side has left."""
        if not self._move_frames(ready):
            return False
        for descriptor in [one for one in self._outputs if one in ready]:
            # Of a terminal it may be ready to be written to alone.
            if ready[descriptor] & ~select.POLLOUT:
                self._read_output(descriptor)
        self._write_input()
        return True

    def _take_frame(self, kind: int, content: bytes) -> None:
        if kind == INPUT:
            if self._has_input and not self._is_input_ending:
                self._input += content
        elif kind == INPUT_END:
            self._is_input_ending = True
            if self._ends.is_terminal:
                self._input += END_OF_TEXT
        elif kind == RESIZE and len(content) == SIZE.size:
            if self._ends.is_terminal:
                set_size(self._ends.input, *SIZE.unpack(content))
        else:
            raise BrokenStream("a frame of kind %d with %d bytes" % (kind, len(content)))

    def _write_input(self) -> None:
        if self._input and self._has_input:
            try:
                del self._input[: os.write(self._ends.input, self._input)]
            except BlockingIOError:
                return
            except OSError:
                # It reads nothing more; what comes for it is dropped.
                self._close_input()
        if self._is_input_ending and not self._input:
            self._close_input()

    def _close_input(self) -> None:
        self._input.clear()
        if self._has_input and not self._ends.is_terminal:
            os.close(self._ends.input)
        self._has_input = False

    def _read_output(self, descriptor: int) -> None:
        content = _read(descriptor)
        if content:
            self._put(self._outputs[descriptor], content)
        elif content is not None:
            del self._outputs[descriptor]

    def _drain(self) -> bool:
        """What was said before the end, no more than pipes hold; False as in `run`."""
        for descriptor in list(self._outputs):
            while descriptor in self._outputs and len(self._output) < 2 * HELD_BYTES:
                before = len(self._output)
                self._read_output(descriptor)
                if len(self._output) == before:
                    break
        return self._flush()


def set_size(terminal: int, columns: int, rows: int) -> None:
    """Also tells the programs in it."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _read(descriptor: int) -> bytes | None:
    """At most one frame's bytes; nothing at the end, None where there is nothing yet."""
    try:
        return os.read(descriptor, CHUNK_BYTES)
    except BlockingIOError:
        return None
    except OSError as error:
        # A terminal whose last program has ended says so.
        if error.errno not in (errno.EIO, errno.ECONNRESET):
            raise
        return b""


def _is_there(descriptor: int) -> bool:
    """Whether the other side has not left; what it still sends is dropped."""
    return _read(descriptor) != b""
