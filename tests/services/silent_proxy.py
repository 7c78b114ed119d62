"""A proxy on loopback that goes silent: connections stay open, and carry nothing any more."""

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CHUNK = 64 * 1024


class SilentProxy:
    """`port` leads to the server's port; after `silence()` for connections made later alone."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.made = 0
        self._silent_to = 0
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, name="silent-proxy", daemon=True).start()

    def silence(self, *, later_too: bool = False) -> None:
        """Swallow everything on the connections that there are, and on those made later."""
        self._silent_to = sys.maxsize if later_too else self.made

    def close(self) -> None:
        """Cut every connection."""
        for one in [self._listener, *self._sockets]:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                self._sockets += [client, server]
                self.made += 1
                for pair in ((client, server), (server, client)):
                    threading.Thread(
                        target=self._carry, args=(*pair, self.made), daemon=True
                    ).start()

    def _carry(self, source: socket.socket, target: socket.socket, number: int) -> None:
        with suppress(OSError):
            while content := source.recv(CHUNK):
                if number > self._silent_to:
                    target.sendall(content)
            if number > self._silent_to:
                target.shutdown(socket.SHUT_WR)


@contextmanager
def silent_proxy(server_port: int) -> Iterator[SilentProxy]:
    """One, for as long as the block lasts."""
    proxy = SilentProxy(server_port)
    try:
        yield proxy
    finally:
        proxy.close()
