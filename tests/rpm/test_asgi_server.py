"""The ASGI server of `manage.py up` against hostile clients."""

import json
import resource
import socket
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any

import pytest
from pytest_django import Settings

from apps.core import bodies
from rpm import http_protocol
from rpm.asgi import application
from tests.services import ports
from tests.services.asgi_server import running_asgi
from tests.services.timeouts import scale_timeout

FORM = "application/x-www-form-urlencoded"


@pytest.fixture
def port() -> Iterator[int]:
    """The server in a thread of this process, as `up` starts it."""
    with running_asgi(application, proxy_headers=False, timeout_graceful_shutdown=1) as server:
        yield server.config.port


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=scale_timeout(20))


def head(path: str, length: int | None, *more: str) -> bytes:
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Type: {FORM}", size, *more]
    return "\r\n".join([*lines, "", ""]).encode()


def answer(client: socket.socket) -> tuple[int, dict[str, Any]]:
    """Status and body of a JSON answer."""
    response = HTTPResponse(client)
    response.begin()
    return response.status, json.loads(response.read())


def is_closed(client: socket.socket) -> bool:
    """Whether the server has closed it; nothing that was answered is left to read."""
    client.settimeout(0)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        client.settimeout(scale_timeout(20))


@pytest.mark.parametrize("claim", [(), ("Authorization: x",), ("Authorization: Basic eDp4",)])
@pytest.mark.django_db(transaction=True)
def test_a_declared_body_above_the_bound_is_answered_at_once(
    port: int, claim: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with connect(port) as client:
        client.sendall(head("/api/v1/tasks/bulk/", 2_000_001, *claim) + b"a")

        status, payload = answer(client)

    assert (status, payload["code"]) == (413, "too_large")
    assert payload["request_id"]
    assert not [one for one in caplog.records if one.name.startswith("uvicorn")]


@pytest.mark.django_db(transaction=True)
def test_a_body_of_no_declared_length_is_answered_at_the_bound(
    port: int, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.RPM_UNKNOWN_BODY = 1000
    with connect(port) as client:
        client.sendall(head("/sign-in/", None, "Cookie: sessionid=x") + b"7d0\r\n" + b"a" * 2000)

        status, payload = answer(client)

    assert (status, payload["code"]) == (413, "too_large")
    assert not [one for one in caplog.records if one.name.startswith("uvicorn")]


def test_a_body_that_stops_is_answered(
    port: int, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.RPM_BODY_S = 1
    with connect(port) as client:
        client.sendall(head("/sign-in/", 1000) + b"a")

        status, payload = answer(client)

    assert (status, payload["code"]) == (408, "too_slow")
    assert not [one for one in caplog.records if one.name.startswith("uvicorn")]


def test_unfinished_bodies_of_one_address_are_bounded(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "MOST_OF_ADDRESS", 3_000_000)
    clients = [connect(port) for _ in range(4)]
    for client in clients:
        client.sendall(head("/sign-in/", 1_100_000) + b"a" * 1_000_000)

    ports.wait_until(lambda: any(map(is_readable, clients)), what="an answer")
    refused = [client for client in clients if is_readable(client)]
    status, payload = answer(refused[0])
    with connect(port) as small:
        small.sendall(head("/sign-in/", 3) + b"a=b")
        small_answer = small.recv(65536)

    assert (status, payload["code"]) == (429, "throttled")
    assert len(refused) < len(clients)
    assert small_answer.startswith(b"HTTP/1.1 403")
    for client in clients:
        client.close()
    ports.wait_until(lambda: not bodies._held_bytes, what="the count to go down")


def is_readable(client: socket.socket) -> bool:
    client.settimeout(0)
    try:
        return bool(client.recv(1, socket.MSG_PEEK))
    except OSError:
        return False
    finally:
        client.settimeout(scale_timeout(20))


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nX-a: "])
def test_a_connection_without_a_whole_request_is_closed(
    port: int, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "HEADERS_S", 1)
    with connect(port) as client:
        client.sendall(begun)

        ports.wait_until(lambda: drip(client, begun) or is_closed(client), what="the end")


def drip(client: socket.socket, begun: bytes) -> bool:
    """Send one more byte of a header that began; whether the server is gone."""
    time.sleep(0.05)
    try:
        client.sendall(b"a" if begun else b"")
    except OSError:
        return True
    return False


def test_the_next_request_of_a_connection_must_come_in_time_as_well(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "HEADERS_S", 1)
    begun = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    with connect(port) as client:
        client.sendall(begun + b"\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        client.sendall(begun + b"X-a: ")

        ports.wait_until(lambda: drip(client, begun) or is_closed(client), what="the end")


def test_a_long_answer_is_not_cut(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    headers_s = scale_timeout(0.2)
    monkeypatch.setattr(http_protocol, "HEADERS_S", headers_s)
    with connect(port) as client:
        client.sendall(head("/sign-in/", 3))
        time.sleep(3 * headers_s)
        client.sendall(b"a=b")

        assert client.recv(65536).startswith(b"HTTP/1.1 403")


def test_at_the_bound_of_connections_the_oldest_without_a_request_is_closed(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "connection_bound", lambda: 3)
    silent = [connect(port) for _ in range(3)]

    with connect(port) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        reply = client.recv(65536)

        assert reply.startswith(b"HTTP/1.1 200")
        assert [is_closed(one) for one in silent] == [True, False, False]
    for one in silent:
        one.close()


def test_the_bound_of_connections_leaves_files_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds = []
    for files in (256, 1024, 65536, -1):
        monkeypatch.setattr(resource, "getrlimit", lambda _, n=files: (n, n))
        bounds.append(http_protocol.connection_bound())

    assert bounds == [128, 824, http_protocol.MOST_CONNECTIONS, http_protocol.MOST_CONNECTIONS]
