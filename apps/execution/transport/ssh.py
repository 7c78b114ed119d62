"""Nodes over SSH: one connection with a pinned host key, and one helper program in it.

A helper of an earlier release knows no channel: it is a program per exchange.
"""

import io
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic, sleep

import paramiko

from apps.core.crash_points import request_chunks
from apps.execution.bundle import remote_command
from apps.execution.protocol.bounds import ANSWER_BYTES
from apps.execution.transport.base import (
    ExchangeFailed,
    HostKeyRefused,
    ProgramFailed,
    Unreachable,
)
from apps.execution.transport.channel import (
    CLOSED,
    ChannelTransport,
    HelperChannel,
    HelperPipes,
    bound_received,
    cut,
)
from apps.execution.transport.host_keys import (
    CONNECT_TIMEOUT_S,
    HostKey,
    open_connection,
    prefer,
    start,
)

KEEP_ALIVE_S = 15
# Below sshd's default MaxSessions of 10, so that an administrator's session fits as well.
EXCHANGES_AT_ONCE = 8
# So long an sshd that is busy may count sessions that have ended here.
FREE_WITHIN_S = 5.0
FREE_STEP_S = 0.05
CHUNK_BYTES = 256 * 1024
ERROR_BYTES = 2000
UNRESTRICTED = "not-restricted"
# paramiko looks so often whether a quiet connection is to end or to be kept alive.
QUIET_STEP_S = 5.0


@dataclass(frozen=True, slots=True)
class SshNode:
    """Where a node is and under which account it is reached.

    Args:
        private_key: PEM text of a key of this node's own, without pass phrase.
        host_key: the only key accepted; None refuses whatever is shown.
        home: the helper's folder, as `install` answered; empty before the installation.
    """

    address: str
    port: int
    user: str
    private_key: str
    host_key: HostKey | None
    home: str = ""


class _NoSession(Unreachable):
    """The connection is there, and has as many sessions as sshd allows."""


class SshTransport(ChannelTransport):
    """Exchanges with one node. Connects when first needed and again after a cut."""

    def __init__(self, node: SshNode) -> None:
        super().__init__()
        self.node = node
        self._lock = threading.Lock()
        # paramiko gives the refusal of a channel to the first thread that asks, not to its own.
        self._opening = threading.Lock()
        self._slots = threading.BoundedSemaphore(EXCHANGES_AT_ONCE)
        self._connection: paramiko.Transport | None = None

    def exchange(self, request: bytes, *, timeout_s: float) -> bytes:
        """The installed helper's answer."""
        if not self.node.home:
            raise Unreachable("the helper is not installed on this node")
        if not self.has_channel:
            return self._run(remote_command(self.node.home), request, timeout_s)
        return self._ask_helper(request, monotonic() + timeout_s)

    def install(self, program: bytes, *, timeout_s: float) -> bytes:
        """Run `python3 -` on the node."""
        return self._run("python3 -", program, timeout_s)

    def is_restricted(self, *, timeout_s: float) -> bool:
        """Whether the node's sshd lets this key run nothing but the helper.

        Raises:
            TransportError: the node was not reached.
        """
        try:
            return self._run(f"echo {UNRESTRICTED}", b"", timeout_s).decode() != f"{UNRESTRICTED}\n"
        except ExchangeFailed:
            # It ran something else, which refused.
            return True

    def sessions_at_once(self, *, most: int, timeout_s: float) -> int:
        """How many sessions the node's sshd opens in one connection, up to `most`; found by trying.

        Raises:
            TransportError: the node was not reached.
        """
        deadline = monotonic() + timeout_s
        channels: list[paramiko.Channel] = []
        try:
            while len(channels) < most:
                channels.append(self._open_channel(deadline))
        except Unreachable:
            if not channels:
                raise
        finally:
            for channel in channels:
                channel.close()
        return len(channels)

    def close(self) -> None:
        """Close the connection for good; running exchanges fail."""
        super().close()
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            cut(connection)

    def open_pipes(self, *, timeout_s: float) -> tuple[HelperPipes, str]:
        """A session of the connection."""
        if not self.node.home:
            raise Unreachable("the helper is not installed on this node")
        return self._free_channel(monotonic() + timeout_s), remote_command(self.node.home)

    def _new_helper(self, deadline: float) -> tuple[HelperChannel, str]:
        channel = self._free_channel(deadline)
        helper = HelperChannel(channel, partial(cut, channel.get_transport()))
        return helper, remote_command(self.node.home)

    def _run(self, command: str, content: bytes, timeout_s: float) -> bytes:
        deadline = monotonic() + timeout_s
        if not self._slots.acquire(timeout=timeout_s):
            raise Unreachable(f"{EXCHANGES_AT_ONCE} exchanges are under way already")
        try:
            channel = self._free_channel(deadline)
            return _converse(channel, command, content, deadline)
        finally:
            self._slots.release()

    def _free_channel(self, deadline: float) -> paramiko.Channel:
        """A channel, once sshd has noticed the end of an earlier one. Nothing was sent by then."""
        until = min(deadline, monotonic() + FREE_WITHIN_S)
        while True:
            try:
                return self._open_channel(deadline)
            except _NoSession:
                if monotonic() >= until:
                    raise
                sleep(FREE_STEP_S)

    def _open_channel(self, deadline: float) -> paramiko.Channel:
        """A channel of the connection; a connection that proves dead is replaced once."""
        for _ in range(2):
            connection = self._connected(deadline)
            try:
                with self._opening:
                    channel = connection.open_session(timeout=max(deadline - monotonic(), 0.1))
                bound_received(channel)
                return channel
            except paramiko.ChannelException as error:
                raise _NoSession(f"the node's sshd opens no session: {error}") from error
            except (paramiko.SSHException, OSError, EOFError) as error:
                self._drop(connection)
                words = str(error)
        raise Unreachable(f"the connection breaks at once: {words}")

    def _connected(self, deadline: float) -> paramiko.Transport:
        with self._lock:
            if self._is_closed:
                raise Unreachable(CLOSED)
            if self._connection is None or not self._connection.is_active():
                timeout_s = max(min(CONNECT_TIMEOUT_S, deadline - monotonic()), 0.1)
                self._connection = _log_in(self.node, timeout_s)
            return self._connection

    def _drop(self, connection: paramiko.Transport) -> None:
        with self._lock:
            if self._connection is connection:
                self._connection = None
        cut(connection)


def load_private_key(text: str) -> paramiko.PKey:
    """A key in OpenSSH or PEM form.

    Raises:
        ValueError: not a private key, or locked by a pass phrase.
    """
    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        try:
            return kind.from_private_key(io.StringIO(text))
        except paramiko.PasswordRequiredException as error:
            raise ValueError("the private key is locked by a pass phrase") from error
        except (paramiko.SSHException, ValueError):
            continue
    raise ValueError("not a private key of a kind that SSH knows")


def _log_in(node: SshNode, timeout_s: float) -> paramiko.Transport:
    try:
        key = load_private_key(node.private_key)
    except ValueError as error:
        raise Unreachable(
            f"the key of {node.user}@{node.address} cannot be used: {error}"
        ) from error
    connection = open_connection(node.address, node.port, timeout_s=timeout_s)
    if node.host_key is not None:
        prefer(connection, node.host_key)
    shown = start(connection, timeout_s=timeout_s)
    if shown != node.host_key:
        connection.close()
        raise _refusal(node, shown)
    try:
        connection.auth_publickey(node.user, key)
    except (paramiko.SSHException, OSError, EOFError) as error:
        connection.close()
        raise Unreachable(f"{node.user}@{node.address} may not log in: {error}") from error
    connection.set_keepalive(KEEP_ALIVE_S)
    connection.sock.settimeout(QUIET_STEP_S)
    return connection


def _refusal(node: SshNode, shown: HostKey) -> HostKeyRefused:
    place = f"{node.address}:{node.port} shows the key {shown.fingerprint} ({shown.kind})"
    if node.host_key is None:
        return HostKeyRefused(f"{place}; none is confirmed yet", shown=shown.fingerprint)
    pinned = node.host_key.fingerprint
    return HostKeyRefused(f"{place}; {pinned} was confirmed", shown=shown.fingerprint)


def _converse(channel: paramiko.Channel, command: str, content: bytes, deadline: float) -> bytes:
    """Run one command to its end.

    paramiko waits for some replies without a time limit, so a timer closes the channel, which
    ends every wait.
    """
    timer = threading.Timer(max(deadline - monotonic(), 0), channel.close)
    timer.daemon = True
    timer.start()
    try:
        channel.exec_command(command)
        # A program may end before it has read all; its words say why.
        with suppress(OSError):
            for piece in request_chunks(content):
                channel.sendall(piece)
            channel.shutdown_write()
        answer = _read_to_end(channel)
        words = channel.recv_stderr(ERROR_BYTES).decode(errors="replace").strip()
        code = channel.recv_exit_status()
    except (paramiko.SSHException, OSError, EOFError) as error:
        reason = "no answer in time" if monotonic() >= deadline else f"cut: {error}"
        raise ExchangeFailed(reason) from error
    finally:
        timer.cancel()
        channel.close()
    if code == 0:
        return answer
    if monotonic() >= deadline:
        raise ExchangeFailed("no answer in time")
    if code == -1:
        raise ExchangeFailed("the connection was cut before the end")
    raise ProgramFailed(f"the helper ended with code {code}: {words}")


def _read_to_end(channel: paramiko.Channel) -> bytes:
    parts = []
    size = 0
    while part := channel.recv(CHUNK_BYTES):
        parts.append(part)
        size += len(part)
        if size > ANSWER_BYTES:
            raise ExchangeFailed(f"an answer of more than {ANSWER_BYTES} bytes")
    return b"".join(parts)
