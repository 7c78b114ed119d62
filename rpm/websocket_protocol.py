"""Websockets of the ASGI server, with bounds on clients that read nothing.

uvicorn itself answers every ping at once, into memory where the client reads no answer, and waits
for ever until a client that it leaves has read what was sent. `rpm.http_protocol` uses this class.
"""

import asyncio
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

# A client that has not read the end by then is cut off. More than uvicorn waits for its answer.
CUT_OFF_S = 15.0


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """Holds at most one answer to a ping back, and leaves no connection open that has ended."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pong = b""
        self._cut_off: asyncio.TimerHandle | None = None

    def handle_ping(self) -> None:
        frames = self.conn.data_to_send()
        if self.writable.is_set():
            self.transport.write(b"".join(frames))
        elif frames:
            # Only the last ping needs an answer (RFC 6455, 5.5.3).
            self._pong = frames[-1]

    def resume_writing(self) -> None:
        super().resume_writing()
        pong, self._pong = self._pong, b""
        if pong and not self.close_sent and not self.transport.is_closing():
            self.transport.write(pong)

    def handle_close(self, event: Any) -> None:
        super().handle_close(event)
        self._cut_off_soon()

    def handle_parser_exception(self) -> None:
        super().handle_parser_exception()
        self._cut_off_soon()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._cut_off_soon()

    async def run_asgi(self) -> None:
        try:
            await super().run_asgi()
        finally:
            self._cut_off_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._cut_off is not None:
            self._cut_off.cancel()
        super().connection_lost(exc)

    def _cut_off_soon(self) -> None:
        if self._cut_off is None and not self.disconnected:
            self._cut_off = self.loop.call_later(CUT_OFF_S, self.transport.abort)
