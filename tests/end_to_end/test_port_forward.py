"""`rpmctl forward` to a running task: real server, sshd and podman."""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from apps.accounts.models import User
from apps.events.models import AuditEntry
from apps.execution.transport.ssh import SshTransport
from tests.end_to_end.running_task import WITHIN_S, RunningTask
from tests.services import ports
from tests.services.sshd import helpers_of
from tests.services.timeouts import scale_timeout

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def forwarded(running: RunningTask, user: User, port: int, said: Path) -> Iterator[int]:
    """The local port of `rpmctl forward`, which writes what it says into `said`."""
    words, environment = running.command(user, "forward", str(running.task.pk), f"{port}:0")
    with (
        said.open("wb") as errors,
        subprocess.Popen(
            words,
            env=environment,
            stderr=errors,
            preexec_fn=end_with_ctrl_c,  # noqa: PLW1509 - one C call, no lock is taken
        ) as program,
    ):
        try:
            ports.wait_until(
                lambda: b"Ctrl-C" in said.read_bytes() or program.poll() is not None,
                what="the port",
            )
            assert program.poll() is None, said.read_bytes()
            yield int(said.read_bytes().split(b":")[1].split()[0])
        finally:
            ports.stop(program, signal=signal.SIGINT, timeout_s=WITHIN_S)


def end_with_ctrl_c() -> None:
    """For `preexec_fn`: tests in the background ignore it, and so would their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def echoed(port: int, content: bytes) -> bytes:
    """What comes back after its half-close; less where the task ends the connection."""
    with socket.create_connection(("127.0.0.1", port), scale_timeout(WITHIN_S)) as client:

        def send() -> None:
            with suppress(OSError):
                client.sendall(content)
                client.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        parts = []
        with suppress(ConnectionError):
            while part := client.recv(65536):
                parts.append(part)
        sender.join()
    return b"".join(parts)


def test_bytes_of_many_connections_arrive_and_one_that_is_not_read_blocks_none(
    contained: RunningTask, alice: User, tmp_path: Path
) -> None:
    large = os.urandom(4 * 1024 * 1024)
    small = [os.urandom(100_000) for _ in range(20)]
    with forwarded(contained, alice, 8888, tmp_path / "said") as port:
        ports.wait_until(lambda: echoed(port, b"there") == b"there", what="the task's server")
        with socket.create_connection(("127.0.0.1", port)) as unread:
            unread.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    unread.send(bytes(65536))

            assert echoed(port, large) == large
            with ThreadPoolExecutor(len(small)) as many:
                assert list(many.map(lambda one: echoed(port, one), small)) == small

    details = AuditEntry.objects.get(verb="stream.opened").details
    assert (details["kind"], details["port"]) == ("port", 8888)


def test_a_port_without_a_listener_is_said_and_the_end_of_the_task_ends_it(
    contained: RunningTask, alice: User, tmp_path: Path
) -> None:
    transport, said = contained.node.client.transport, tmp_path / "said"
    assert isinstance(transport, SshTransport)
    home = transport.node.home
    before = len(helpers_of(home))
    with forwarded(contained, alice, 9999, said) as port:
        assert echoed(port, b"") == b""
        ports.wait_until(
            lambda: b"nothing listens on 127.0.0.1:9999 in the task" in said.read_bytes(),
            what="words",
        )
        contained.stop()

        ports.wait_until(lambda: b"The task has ended." in said.read_bytes(), what="its end")
    ports.wait_until(lambda: len(helpers_of(home)) < before, what="no helper is left")
