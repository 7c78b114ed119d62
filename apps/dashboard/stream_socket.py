"""The socket of a stream into a running task: a command, a terminal, or connections to a port.

Text frames are JSON about the stream, binary ones a kind and bytes. Each end takes no more than
the other one does: what a client does not read stays on the node, and what a task does not read
stays with the client.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, Final, Self, TypeVar
from uuid import UUID

import msgspec
import structlog
from channels.db import database_sync_to_async
from django.db import Error

from apps.accounts.models import Scope
from apps.accounts.services.access import CredentialAccess, access_holds
from apps.accounts.services.throttling import stream_admit
from apps.core.errors import RpmError, TooMany
from apps.dashboard.consumers import BAD_MESSAGE, NOT_SIGNED_IN, PERMISSIONS_CHANGED, TOO_MANY
from apps.execution.node.port_relay import CLOSE, CONNECT, CREDIT, DATA, DATA_END
from apps.execution.node.stream_relay import CHUNK_BYTES, END, INPUT, INPUT_END, RESIZE
from apps.execution.services.streams import (
    StreamTarget,
    WantedStream,
    stream_begin,
    stream_ended,
    stream_holds,
    stream_target,
)
from apps.execution.transport.base import TransportError
from apps.execution.transport.streams import NodeStream, end_of

log = structlog.get_logger(__name__)

# Of this process: each takes two threads and a connection to its node.
MOST_STREAMS: Final = 200
MOST_OF_PERSON: Final = 16
MOST_OF_TASK: Final = 16
# A few people with idle streams leave places on it for others.
MOST_OF_NODE: Final = 64
MOST_OF_PERSON_ON_NODE: Final = 8
# Permissions, credential and attempt are checked so often: each may end.
CHECK_S: Final = 2.0
# A stream whose permission cannot be checked for so long ends: the database is away.
UNCHECKED_S: Final = 10.0
# Its end waits so long for the audit log.
RECORD_S: Final = 10.0
# Sent so often to a quiet client; one that has gone is noticed by it.
PING_S: Final = 10.0
FIRST_MESSAGE_S: Final = 30.0
# A client that takes nothing more is left.
CLOSE_S: Final = 5.0
PING: Final = bytes([64])
# Close codes besides those of the live socket.
NORMAL, REFUSED, CUT = 1000, 4409, 1011
DATABASE_AWAY: Final = (
    "The server cannot check whether you may have this stream: its database does not answer."
)
_OF_COMMANDS: Final = frozenset({INPUT, INPUT_END, RESIZE})
_OF_PORTS: Final = frozenset({CONNECT, DATA, DATA_END, CREDIT, CLOSE})

T = TypeVar("T")
_Key = tuple[str, object]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_threads = ThreadPoolExecutor(2 * MOST_STREAMS + 8, thread_name_prefix="stream")
_open: Counter[_Key] = Counter()


class _Closed(Exception):
    """The stream is over; the socket closes with this code."""

    def __init__(self, code: int, message: dict[str, Any] | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.message = message


async def stream_socket(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """One socket, from its opening to its end. Only programs with a credential have one."""
    if (await receive())["type"] != "websocket.connect":
        return
    await send({"type": "websocket.accept"})
    try:
        await _serve(scope, receive, send)
    except _Closed as closed:
        await _close(send, closed)
    except OSError:
        # The client has gone.
        return


async def _serve(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    access = scope.get("access")
    if not isinstance(access, CredentialAccess):
        raise _Closed(TOO_MANY if scope.get("is_too_many") else NOT_SIGNED_IN)
    if not access.scope.covers(Scope.ENQUEUE):
        words = "The credential may only read: a stream needs the scope enqueue."
        raise _refused("forbidden", words, code_of_close=PERMISSIONS_CHANGED)
    task_id: UUID = scope["url_route"]["kwargs"]["pk"]
    with _Counted() as counted:
        try:
            # One that says nothing counts, too.
            counted.add([("all", 0), ("person", access.user.pk)])
            wanted = await _wanted(receive)
            await database_sync_to_async(stream_admit)(access.user.pk)
            target = await database_sync_to_async(stream_target)(
                actor=access.user,
                scope=access.scope,
                task_id=task_id,
                wanted=wanted,
            )
        except RpmError as error:
            raise _refused(error.code, error.detail) from error
        except Error as error:
            raise _cut(DATABASE_AWAY) from error
        await _Conversation(access, target, receive, send).run(counted)


class _Conversation:
    """One stream between a client and a node."""

    def __init__(
        self, access: CredentialAccess, target: StreamTarget, receive: Receive, send: Send
    ) -> None:
        self._access = access
        self._target = target
        self._receive = receive
        self._send = send
        self._received_bytes = 0
        self._sent_bytes = 0

    async def run(self, counted: "_Counted") -> None:
        """Until one end leaves, or may not stay.

        Raises:
            _Closed: with the code that the client is to hear.
        """
        stream: NodeStream | None = None
        try:
            try:
                # Who may not have it takes no place of those who may.
                node, person = self._target.node.pk, self._target.actor.pk
                places: list[_Key] = [("node", node), ("person on node", (person, node))]
                counted.add([("task", self._target.task.pk), *places])
                stream = await _in_thread(stream_begin, self._target)
            except RpmError as error:
                raise _refused(error.code, error.detail) from error
            await self._say({"type": "open"})
            await self._carry(stream)
        finally:
            if stream is not None:
                await _in_thread(stream.close)
            await self._record_end()

    async def _carry(self, stream: NodeStream) -> None:
        parts = (self._to_node(stream), self._to_client(stream), self._check(), self._ping())
        tasks = [asyncio.ensure_future(part) for part in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Threads that wait for the node come back.
            await _in_thread(stream.close)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in done:
            task.result()

    async def _to_node(self, stream: NodeStream) -> None:
        kinds = _OF_PORTS if self._target.request.kind == "port" else _OF_COMMANDS
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return
            content = message.get("bytes") or b""
            if not content or content[0] not in kinds or len(content) > CHUNK_BYTES + 1:
                raise _Closed(BAD_MESSAGE)
            self._received_bytes += len(content) - 1
            try:
                await _in_thread(stream.send, content[0], content[1:])
            except TransportError:
                # What the node still had to say comes first.
                await asyncio.Event().wait()

    async def _to_client(self, stream: NodeStream) -> None:
        while True:
            try:
                frame = await _in_thread(stream.receive)
            except TransportError as error:
                raise _cut(str(error)) from error
            if frame is None:
                raise _cut("The connection to the node has ended.")
            if frame.kind == END:
                end = end_of(frame.content)
                words = {"exit_code": end.exit_code, "is_task_over": end.is_task_over}
                raise _Closed(NORMAL, {"type": "end", **words})
            self._sent_bytes += len(frame.content)
            content = bytes([frame.kind]) + frame.content
            await self._send({"type": "websocket.send", "bytes": content})

    async def _check(self) -> None:
        until = monotonic() + UNCHECKED_S
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                async with asyncio.timeout(until - monotonic()):
                    holds = await database_sync_to_async(self._holds)()
            except (Error, TimeoutError) as error:
                if monotonic() < until:
                    continue
                raise _cut(DATABASE_AWAY) from error
            if not holds:
                raise _Closed(PERMISSIONS_CHANGED)
            until = monotonic() + UNCHECKED_S

    def _holds(self) -> bool:
        return access_holds(self._access) and stream_holds(self._target)

    async def _record_end(self) -> None:
        carried = {"received_bytes": self._received_bytes, "sent_bytes": self._sent_bytes}
        try:
            async with asyncio.timeout(RECORD_S):
                await database_sync_to_async(stream_ended)(self._target, **carried)
        except (Error, TimeoutError):
            log.warning("stream.end_not_recorded", task=str(self._target.task.pk), **carried)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_S)
            await self._send({"type": "websocket.send", "bytes": PING})

    async def _say(self, message: dict[str, Any]) -> None:
        await self._send({"type": "websocket.send", "text": json.dumps(message)})


class _Counted:
    """How many streams there are, of each key; what was added here is subtracted at the end."""

    def __init__(self) -> None:
        self._keys: list[_Key] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for key in self._keys:
            _open[key] -= 1
            if not _open[key]:
                del _open[key]

    def add(self, keys: list[_Key]) -> None:
        """Raise `TooMany` where one of them has as many as it may have."""
        for key in keys:
            if _open[key] >= _MOST[key[0]]:
                raise TooMany(
                    f"There are {_MOST[key[0]]} streams {_WORDS[key[0]]} already.", retry_after_s=60
                )
        for key in keys:
            _open[key] += 1
            self._keys.append(key)


_MOST: Final = {
    "all": MOST_STREAMS,
    "person": MOST_OF_PERSON,
    "task": MOST_OF_TASK,
    "node": MOST_OF_NODE,
    "person on node": MOST_OF_PERSON_ON_NODE,
}
_WORDS: Final = {
    "all": "in this installation",
    "person": "of yours",
    "task": "into this task",
    "node": "to its node",
    "person on node": "of yours to its node",
}


async def _wanted(receive: Receive) -> WantedStream:
    try:
        async with asyncio.timeout(FIRST_MESSAGE_S):
            message = await receive()
    except TimeoutError:
        raise _Closed(BAD_MESSAGE) from None
    if message["type"] == "websocket.disconnect":
        raise _Closed(NORMAL)
    try:
        return msgspec.json.decode(message.get("text") or "", type=WantedStream)
    except msgspec.MsgspecError as error:
        raise _refused("invalid", f"The first message does not say which stream: {error}") from None


async def _in_thread(work: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(_threads, work, *arguments)


def _refused(code: str, detail: str, *, code_of_close: int = REFUSED) -> _Closed:
    return _Closed(code_of_close, {"type": "refused", "code": code, "detail": detail})


def _cut(detail: str) -> _Closed:
    return _Closed(CUT, {"type": "cut", "detail": detail})


async def _close(send: Send, closed: _Closed) -> None:
    try:
        async with asyncio.timeout(CLOSE_S):
            if closed.message is not None:
                await send({"type": "websocket.send", "text": json.dumps(closed.message)})
            await send({"type": "websocket.close", "code": closed.code})
    except (OSError, RuntimeError):
        # It has gone already, or takes nothing more.
        return
