"""ASGI servers in a thread of this process."""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from rpm.http_protocol import BoundedProtocol
from tests.services import ports
from tests.services.timeouts import scale_timeout


async def _nothing() -> None:
    """Nothing is left to close."""


@contextmanager
def running_asgi(
    application: Any, *, at_end: Callable[[], Awaitable[object]] = _nothing, **options: Any
) -> Iterator[uvicorn.Server]:
    """A server with the product's protocol on a port that no other process can take.

    Args:
        at_end: runs in the server's loop when it has ended.
        options: of `uvicorn.Config`.
    """
    with socket.create_server(("127.0.0.1", 0)) as bound:
        config = uvicorn.Config(
            application,
            port=bound.getsockname()[1],
            http=BoundedProtocol,
            log_level="error",
            lifespan="off",
            **options,
        )
        server = uvicorn.Server(config)

        async def serve() -> None:
            await server.serve(sockets=[bound])
            await at_end()

        thread = threading.Thread(target=asyncio.run, args=(serve(),))
        thread.start()
        try:
            ports.wait_until(lambda: server.started, what="the server")
            yield server
        finally:
            server.should_exit = True
            thread.join(timeout=scale_timeout(30))
