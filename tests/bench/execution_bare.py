"""The other side of `execution.py`: podman by hand, over one SSH connection that stays open.

The connection is made by the control plane's own code, so that it has the same socket options. The
next command is sent when the one before has answered, as by somebody who never has to think.
"""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import paramiko

from apps.execution.transport.host_keys import open_connection, start
from tests.bench.execution_stage import SCRIPTS, Stage, now_s
from tests.services.sshd import SshdNode

CHUNK_BYTES = 64 * 1024


@dataclass(slots=True)
class Run:
    """One `podman run` under way, whose client hears what the container writes."""

    name: str
    channel: paramiko.Channel
    heard: bytes = b""

    def first_line_s(self) -> float:
        """When the client had the first line."""
        self._hear(lines=1)
        return now_s()

    def end(self) -> list[float]:
        """Wait until the client has ended; what the container wrote, moments of its own."""
        self._hear(lines=0)
        self.channel.recv_exit_status()
        self.channel.close()
        return [float(line.split()[0]) for line in self.heard.splitlines()]

    def _hear(self, *, lines: int) -> None:
        while not lines or self.heard.count(b"\n") < lines:
            part = self.channel.recv(CHUNK_BYTES)
            if not part and lines:
                words = self.channel.recv_stderr(CHUNK_BYTES).decode(errors="replace")
                raise RuntimeError(f"{self.name} ended without a line: {words}")
            if not part:
                return
            self.heard += part


@dataclass(slots=True)
class Bare:
    """Runs containers of the same programs as tasks, without the installation."""

    stage: Stage
    connection: paramiko.Transport
    runs: int = field(default=0)

    def run(self, program: str) -> Run:
        """Send `podman run`; the container has a name and a gate of its own."""
        self.runs += 1
        name = f"bare-{self.runs}"
        self.stage.make_gate(name)
        words = [
            *("run", "--rm", f"--name={name}", f"--env=GATE={name}"),
            f"--volume={self.stage.gates}:/volumes/gates",
            *("--", self.stage.podman.image, "/bin/sh", "-c", SCRIPTS[program]),
        ]
        return Run(name, self._send(words))

    def stop(self, name: str, *, grace_s: int) -> None:
        """`podman stop`, which returns when it has stopped."""
        self._answered(["stop", f"--time={grace_s}", "--", name])

    def kill(self, name: str) -> None:
        """`podman kill`."""
        self._answered(["kill", "--", name])

    def _answered(self, words: list[str]) -> None:
        channel = self._send(words)
        while channel.recv(CHUNK_BYTES):
            pass
        if channel.recv_exit_status() != 0:
            raise RuntimeError(channel.recv_stderr(CHUNK_BYTES).decode(errors="replace"))
        channel.close()

    def _send(self, words: list[str]) -> paramiko.Channel:
        variables = [f"{name}={value}" for name, value in self.stage.podman.environment.items()]
        channel = self.connection.open_session()
        channel.exec_command(shlex.join(["env", *variables, "podman", *words]))
        return channel


@contextmanager
def by_hand(stage: Stage, node: SshdNode) -> Iterator[Bare]:
    """A connection that is open already, as the control plane's own is."""
    connection = open_connection(node.address, node.port, timeout_s=10)
    start(connection, timeout_s=10)
    try:
        connection.auth_publickey(
            node.user, paramiko.Ed25519Key.from_private_key_file(str(node.key_path))
        )
        yield Bare(stage, connection)
    finally:
        connection.close()
