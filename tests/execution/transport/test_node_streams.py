"""The server's end of a stream against a node that takes nothing more."""

import threading

from apps.execution.transport.streams import NodeStream
from tests.services.timeouts import scale_timeout


class _StuckPipes:
    """A session whose end waits until the connection is cut, as paramiko's does."""

    def __init__(self) -> None:
        self.cut = threading.Event()

    def exec_command(self, command: str) -> None:
        """Not used."""

    def sendall(self, s: bytes) -> None:
        self.cut.wait()

    def recv(self, nbytes: int) -> bytes:
        self.cut.wait()
        return b""

    def recv_stderr_ready(self) -> bool:
        return False

    def recv_stderr(self, nbytes: int) -> bytes:
        return b""

    def close(self) -> None:
        self.cut.wait()


def test_a_node_that_takes_nothing_more_does_not_keep_a_stream_from_closing() -> None:
    pipes = _StuckPipes()
    stream = NodeStream(pipes, pipes.cut.set)
    closing = threading.Thread(target=stream.close, daemon=True)

    closing.start()
    closing.join(scale_timeout(30))

    assert not closing.is_alive()
    pipes.cut.set()
