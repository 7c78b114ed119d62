"""Answers requests for as long as a connection lasts: one program, a forked child per request.

Frames go both ways: a number, a kind and a length, then so many bytes. What happens to the
connection reaches no child: it carries its request out, and no process reads its answer.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import traceback
from typing import Callable, NoReturn

# What the server sends first; the one request of a program without a channel is JSON.
OPENING = b"rpm-channel 1\n"
HEADER = struct.Struct("!QBI")
ANSWER, FAILURE, NOT_BEGUN = 0, 1, 2
# Of a request that makes this program a stream: it answers nothing else from then on. Helpers of
# earlier versions look at no request's kind, and refuse its verb.
STREAM = 3
# Of the frame that says that this program answers.
GREETING = 0
IN_FLIGHT = 64
FRAME_BYTES = 16 * 1024 * 1024
ANSWER_BYTES = 32 * 1024 * 1024
CHUNK_BYTES = 64 * 1024
WORDS_BYTES = 2000
READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class BrokenChannel(Exception):
    """The other side does not follow the rules of this channel."""


class _Child:
    """A process that carries one request out, and what it has answered so far."""

    def __init__(self, number: int, pid: int) -> None:
        self.number = number
        self.pid = pid
        self.content = bytearray()


class Channel:
    """Reads requests from descriptor 0, writes answers to descriptor 1.

    Args:
        answer: carries one request out; called in a process of its own.
        stream: serves a stream in this process; gets the request's number, the request, and what
            was received behind it.
    """

    def __init__(
        self, answer: Callable[[bytes], bytes], stream: Callable[[int, bytes, bytes], None]
    ) -> None:
        self._answer = answer
        self._stream = stream
        self._received = bytearray()
        self._children: dict[int, _Child] = {}
        self._poll = select.poll()

    def serve(self, greeting: bytes) -> None:
        """Answer until the other side closes; what is under way then goes on by itself.

        Raises:
            BrokenChannel: a frame is longer than any request.
        """
        self._poll.register(0, READABLE)
        try:
            send(GREETING, ANSWER, greeting)
            while True:
                for descriptor, _ in self._poll.poll():
                    if descriptor:
                        self._read_child(descriptor)
                    elif not self._read_requests():
                        return
        except BrokenPipeError:
            return

    def _read_requests(self) -> bool:
        """False at the end."""
        content = os.read(0, CHUNK_BYTES)
        self._received += content
        while len(self._received) >= HEADER.size:
            number, kind, size = HEADER.unpack_from(self._received)
            if size > FRAME_BYTES:
                raise BrokenChannel("a request of %d bytes" % size)
            end = HEADER.size + size
            if len(self._received) < end:
                break
            request = bytes(self._received[HEADER.size : end])
            del self._received[:end]
            if kind == STREAM and not self._children:
                self._stream(number, request, bytes(self._received))
                return False
            self._begin(number, request)
        return bool(content)

    def _begin(self, number: int, request: bytes) -> None:
        if len(self._children) >= IN_FLIGHT:
            send(number, NOT_BEGUN, b"%d requests are under way already" % IN_FLIGHT)
            return
        try:
            reading, writing = os.pipe()
        except OSError as error:
            send(number, NOT_BEGUN, str(error).encode())
            return
        try:
            pid = os.fork()
        except OSError as error:
            os.close(reading)
            os.close(writing)
            send(number, NOT_BEGUN, str(error).encode())
            return
        if pid == 0:
            self._run_child(writing, request)
        os.close(writing)
        self._children[reading] = _Child(number, pid)
        self._poll.register(reading, READABLE)

    def _run_child(self, writing: int, request: bytes) -> NoReturn:
        code = 1
        try:
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                # sshd waits for every process that holds the connection's pipes.
                os.dup2(nothing, descriptor)
            for descriptor in (nothing, *self._children):
                os.close(descriptor)
            _write(writing, self._answer(request))
            code = 0
        except BaseException:  # noqa: BLE001  # the last frame of this process: whatever it was, it is answered
            with contextlib.suppress(BaseException):
                _write(writing, traceback.format_exc().encode()[-WORDS_BYTES:])
        finally:
            os._exit(code)

    def _read_child(self, descriptor: int) -> None:
        child = self._children[descriptor]
        content = os.read(descriptor, CHUNK_BYTES)
        child.content += content
        is_too_long = len(child.content) > ANSWER_BYTES
        if content and not is_too_long:
            return
        self._poll.unregister(descriptor)
        os.close(descriptor)
        del self._children[descriptor]
        if is_too_long:
            os.kill(child.pid, signal.SIGKILL)
        status = os.waitpid(child.pid, 0)[1]
        if status == 0:
            send(child.number, ANSWER, bytes(child.content))
            return
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        words = b"too long an answer" if is_too_long else bytes(child.content[-WORDS_BYTES:])
        send(child.number, FAILURE, b"the helper ended with code %d: %s" % (code, words))


def send(number: int, kind: int, content: bytes) -> None:
    """Write one frame."""
    _write(1, HEADER.pack(number, kind, len(content)) + content)


def _write(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
