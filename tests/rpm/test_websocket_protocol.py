"""Websockets of the ASGI server against clients that read nothing."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from rpm import websocket_protocol
from rpm.websocket_protocol import BoundedWebSocket
from tests.services import ports
from tests.services.asgi_server import running_asgi
from tests.services.timeouts import scale_timeout

# A ping of 125 bytes, masked with zeros.
PING = b"\x89\xfd" + bytes(4) + b"p" * 125
PINGS = 64 * 1024
HANDSHAKE = (
    b"GET /%s HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """`/listen` waits for the client's end; `/flood` ends when nothing more is taken."""
    await receive()
    await send({"type": "websocket.accept"})
    if scope["path"] == "/listen":
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    part = {"type": "websocket.send", "bytes": bytes(1024 * 1024)}
    try:
        while True:
            await asyncio.wait_for(send(part), 1)
    except TimeoutError:
        return


@pytest.fixture
def server() -> Iterator[uvicorn.Server]:
    # Clients here answer no ping.
    with running_asgi(application, timeout_graceful_shutdown=1, ws_ping_interval=None) as found:
        yield found


def connected(server: uvicorn.Server, path: bytes) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(scale_timeout(60))
    client.connect(("127.0.0.1", server.config.port))
    client.sendall(HANDSHAKE % path)
    assert client.recv(12) == b"HTTP/1.1 101"
    return client


def test_pings_whose_answers_nobody_reads_fill_no_memory(
    server: uvicorn.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, answered = [0], BoundedWebSocket.handle_ping

    def measured(protocol: BoundedWebSocket) -> None:
        answered(protocol)
        held.append(protocol.transport.get_write_buffer_size())

    monkeypatch.setattr(BoundedWebSocket, "handle_ping", measured)
    with connected(server, b"listen") as client:
        client.sendall(PING * PINGS)
        ports.wait_until(lambda: len(held) > PINGS, what="all pings", timeout_s=60)

        # What one read brought is answered together.
        assert max(held) < 1024 * 1024


def test_the_last_ping_is_answered_once_the_client_reads(server: uvicorn.Server) -> None:
    last = b"\x89\x84" + bytes(4) + b"last"
    with connected(server, b"listen") as client:
        client.sendall(PING * PINGS + last)

        said = b""
        while not said.endswith(b"\x8a\x04last"):
            part = client.recv(65536)
            assert part
            said = said[-10:] + part


def test_a_client_that_reads_no_end_is_cut_off(
    server: uvicorn.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket_protocol, "CUT_OFF_S", 0.5)
    with connected(server, b"flood"):
        ports.wait_until(lambda: not server.server_state.connections, what="the cut")
