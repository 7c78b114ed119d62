"""HTTP/1.1 of the ASGI server, with bounds on connections that send no request.

uvicorn itself waits for ever for a request that never comes or never ends, on any number of
connections. `manage.py up` and the unit of the sockets start it with this class (`--http`).
"""

import asyncio
import resource
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from rpm.websocket_protocol import BoundedWebSocket

# For the request line and all headers, counted from the connection or from their first byte.
HEADERS_S = 15
# Of one process, websockets among them; fewer where the process may not open that many files.
MOST_CONNECTIONS = 10_000
_OTHER_FILES = 200


def connection_bound() -> int:
    """How many connections this process takes, so that files are left for everything else."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return min(MOST_CONNECTIONS, max(files - _OTHER_FILES, files // 2))


class BoundedProtocol(H11Protocol):
    """Closes a connection whose headers are not there in time.

    At the bound on connections, the oldest that has sent no request yet is closed for a new one;
    where there is none, the new one is closed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ws_protocol_class = BoundedWebSocket
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        super().connection_made(transport)
        if len(self.connections) > connection_bound():
            next(iter(_waiting), self).close_now()
        if not transport.is_closing():
            self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        # uvicorn types it as if there were one from the beginning.
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            # The next request, or what is left of a body that is answered already.
            self._wait_for_request()
        else:
            self._stop_waiting()

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._stop_waiting()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def close_now(self) -> None:
        """Close without a response: a client that sent no request waits for none."""
        self._stop_waiting()
        self.connections.discard(self)
        self.transport.abort()

    def _wait_for_request(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEADERS_S, self.close_now)
            _waiting[self] = None

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
        _waiting.pop(self, None)


# Connections of this process without a request, the oldest first.
_waiting: dict[BoundedProtocol, None] = {}
