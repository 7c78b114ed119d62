"""Commands, shells and connections into a running task, over a websocket.

Binary messages are a kind and bytes, text ones JSON about the stream.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import quote

from rpm_client.errors import RefusedError, UnreachableError

INPUT, INPUT_END, RESIZE = 16, 17, 18
OUTPUT, ERRORS = 32, 33
PART_BYTES = 32 * 1024
MESSAGE_BYTES = 1024 * 1024
OPEN_S = 60.0
# Close codes of the server.
NOT_SIGNED_IN, PERMISSIONS_CHANGED, TOO_MANY = 4401, 4403, 4429
_SENTENCES = {
    NOT_SIGNED_IN: (401, "authentication_failed", "The credential is wrong, expired or revoked."),
    PERMISSIONS_CHANGED: (403, "forbidden", "The stream was closed: you may not have it any more."),
    TOO_MANY: (429, "throttled", "Too many wrong credentials came from here. Try again later."),
}


class Part(NamedTuple):
    """What the task wrote: its kind, such as `OUTPUT` or `ERRORS`, and its bytes."""

    kind: int
    content: bytes


class TaskStream:
    """One stream. One thread iterates over `parts`, another one may send.

    `exit_code` is that of the command once `parts` has ended, None where it has none: the task
    ended first (`is_task_over`).
    """

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self.exit_code: int | None = None
        self.is_task_over = False

    def parts(self, kinds: Sequence[int] = (OUTPUT, ERRORS)) -> Iterator[Part]:
        """What the task writes, until the command ends.

        Args:
            kinds: all others are left out.

        Raises:
            RefusedError: the server refused it, or closed it.
            UnreachableError: the connection was cut.
        """
        while True:
            message = self._next()
            if isinstance(message, bytes):
                if message and message[0] in kinds:
                    yield Part(message[0], message[1:])
                continue
            if message["type"] == "end":
                self.exit_code = message["exit_code"]
                self.is_task_over = bool(message["is_task_over"])
                return

    def send(self, content: bytes) -> None:
        """Input of the command; waits while the task does not read it."""
        for start in range(0, len(content), PART_BYTES):
            self.send_frame(INPUT, content[start : start + PART_BYTES])

    def send_end(self) -> None:
        """There is no more input."""
        self.send_frame(INPUT_END, b"")

    def resize(self, columns: int, rows: int) -> None:
        """The terminal has another size."""
        self.send_frame(RESIZE, struct.pack("!HH", columns, rows))

    def close(self) -> None:
        """End the command, if it has not ended."""
        self._socket.close()

    def send_frame(self, kind: int, content: bytes) -> None:
        """One message of another kind; waits as `send` does."""
        closed = import_module("websockets.exceptions").ConnectionClosed
        try:
            self._socket.send(bytes([kind]) + content)
        except (closed, OSError) as error:
            raise UnreachableError("The stream has ended.") from error

    def _next(self) -> Any:
        closed = import_module("websockets.exceptions").ConnectionClosed
        try:
            message = self._socket.recv()
        except closed as error:
            code = error.rcvd.code if error.rcvd is not None else 0
            if code in _SENTENCES:
                status, word, detail = _SENTENCES[code]
                raise RefusedError(status, word, detail, {}) from error
            raise UnreachableError("The connection to the server was cut.") from error
        if isinstance(message, bytes):
            return message
        try:
            found = json.loads(message)
        except ValueError as error:
            raise UnreachableError("The server sent something else than a stream.") from error
        if found["type"] == "refused":
            raise RefusedError(409, found["code"], found["detail"], {})
        if found["type"] == "cut":
            raise UnreachableError(found["detail"])
        return found


def stream_open(
    url: str,
    task_id: str,
    *,
    kind: str,
    command: Sequence[str] = (),
    rank: int = 0,
    size: tuple[int, int] = (80, 24),
    port: int = 0,
    key: str = "",
    secret: str = "",
    token: str = "",
) -> TaskStream:
    """A command (`exec`), a terminal (`shell`) or connections (`port`) into a task that runs.

    Args:
        size: columns and rows of a terminal.
        port: of the task, to which connections are made.

    Raises:
        UnreachableError: the server does not answer.
    """
    connect = import_module("websockets.sync.client").connect
    failed = import_module("websockets.exceptions").WebSocketException
    pair = base64.b64encode(f"{key}:{secret}".encode()).decode()
    header = f"Bearer {token}" if token else f"Basic {pair}"
    address = f"{_socket_address(url)}/ws/tasks/{quote(task_id)}/stream/"
    try:
        socket = connect(
            address,
            additional_headers={"Authorization": header},
            open_timeout=OPEN_S,
            max_size=MESSAGE_BYTES,
            compression=None,
        )
    except (failed, OSError, ValueError) as error:
        raise UnreachableError(f"{address} does not answer: {error}.") from error
    wanted = {"kind": kind, "command": list(command), "rank": rank}
    if port:
        wanted["port"] = port
    # A server that has closed it already said why: the first read raises that.
    with suppress(import_module("websockets.exceptions").ConnectionClosed, OSError):
        socket.send(json.dumps({**wanted, "columns": size[0], "rows": size[1]}))
    return TaskStream(socket)


def _socket_address(url: str) -> str:
    """The server's address for websockets: encrypted exactly where the server's is."""
    scheme, _, place = url.rstrip("/").partition("://")
    return f"{'wss' if scheme.lower() == 'https' else 'ws'}://{place}"
