"""`rpmctl exec` against servers and nodes that mean no good."""

import errno
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from websockets.sync.server import ServerConnection, serve

from rpm_client.errors import RefusedError, UnreachableError
from rpm_client.port_forward import PortForward
from rpm_client.streams import stream_open
from tests.services.timeouts import scale_timeout

HOSTILE = "no\x1b]0;title\x07 such\x1b[2J task\rfake\x9b31m\x08"


@pytest.fixture
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that answers every stream with this message."""

    def answered(connection: ServerConnection) -> None:
        connection.recv()
        connection.send(request.param)

    with serve(answered, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("url", "want"),
    [
        pytest.param(
            json.dumps({"type": "refused", "code": "conflict", "detail": HOSTILE}), 1, id="refused"
        ),
        pytest.param(json.dumps({"type": "cut", "detail": HOSTILE}), 3, id="cut"),
        pytest.param(HOSTILE, 3, id="no JSON"),
    ],
    indirect=["url"],
)
def test_words_of_servers_and_nodes_control_no_terminal(url: str, want: int) -> None:
    access = {"RPM_URL": url, "RPM_KEY": "key", "RPM_SECRET": "secret"}

    done = subprocess.run(
        [sys.executable, "-m", "rpm_client", "exec", "t1", "--", "true"],
        env={**os.environ, **access},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=scale_timeout(60),
    )

    assert done.returncode == want, done.stderr
    assert not {one for one in done.stderr.decode() if not one.isprintable()} - {"\n"}
    assert b"Traceback" not in done.stderr


def test_a_stream_is_encrypted_however_https_is_written() -> None:
    first: list[bytes] = []

    def listen() -> None:
        connection, _ = listener.accept()
        with connection:
            first.append(connection.recv(1))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=listen)
        thread.start()
        with suppress(UnreachableError):
            stream_open(f"HTTPS://127.0.0.1:{listener.getsockname()[1]}", "t1", kind="shell")
        thread.join()

    # The first byte of TLS.
    assert first == [b"\x16"]


class FullOnce:
    """A listener whose first connection cannot be accepted."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._failures = [OSError(errno.EMFILE, os.strerror(errno.EMFILE))]

    def accept(self) -> tuple[socket.socket, object]:
        if self._failures:
            raise self._failures.pop()
        return self._listener.accept()

    def close(self) -> None:
        self._listener.close()


def test_forward_goes_on_after_a_connection_that_it_could_not_accept() -> None:
    connected = threading.Event()

    def answered(connection: ServerConnection) -> None:
        connection.recv()
        connection.recv()
        connected.set()

    with serve(answered, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        words: list[str] = []
        forward = PortForward(stream_open(url, "t", kind="port", port=80), 0, words.append)
        forward._listener = FullOnce(forward._listener)  # type: ignore[assignment]

        def run() -> None:
            with suppress(RefusedError, UnreachableError):
                forward.run()

        running = threading.Thread(target=run)
        running.start()
        with socket.create_connection(("127.0.0.1", forward.port)):
            assert connected.wait(scale_timeout(30))
        running.join()
        server.shutdown()
        thread.join()
    assert words == ["Too many open files"]
