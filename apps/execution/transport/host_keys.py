"""Host keys of nodes: what is pinned, what is shown to an administrator."""

import base64
import hashlib
import socket
from dataclasses import dataclass

import paramiko

from apps.execution.transport.base import Unreachable
from apps.execution.transport.channel import BoundedPacketizer

# While the control plane waits for a TCP connection, a banner, a key exchange or a log-in.
CONNECT_TIMEOUT_S = 10.0
# After so long without an acknowledged byte the kernel gives the connection up.
SILENCE_MS = 30_000


@dataclass(frozen=True, slots=True)
class HostKey:
    """A host's public key, as a known_hosts file holds it."""

    kind: str
    base64: str

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it: `SHA256:...`."""
        digest = hashlib.sha256(base64.b64decode(self.base64)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def ssh_host_key(address: str, port: int, *, timeout_s: float = CONNECT_TIMEOUT_S) -> HostKey:
    """Ask a host for its key, for an administrator to confirm. There is no log-in.

    Raises:
        Unreachable: no SSH server answers there.
    """
    connection = open_connection(address, port, timeout_s=timeout_s)
    try:
        return start(connection, timeout_s=timeout_s)
    finally:
        connection.close()


def open_connection(address: str, port: int, *, timeout_s: float) -> paramiko.Transport:
    """Connect without speaking SSH yet.

    Raises:
        Unreachable: nothing listens there.
    """
    try:
        plain = socket.create_connection((address, port), timeout=timeout_s)
    except OSError as error:
        raise Unreachable(_unreachable(address, port, error)) from error
    # An exchange is many small packets; waiting to fill each costs 40 ms a time.
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MS)
    connection = paramiko.Transport(plain, packetizer_class=BoundedPacketizer)
    connection.banner_timeout = timeout_s
    connection.handshake_timeout = timeout_s
    connection.auth_timeout = timeout_s
    connection.channel_timeout = timeout_s
    return connection


def _unreachable(address: str, port: int, error: OSError) -> str:
    """What happened, and what to check."""
    place = f"{address}:{port}"
    if isinstance(error, socket.gaierror):
        return f"The name {address} is not known to this server. Check the address and DNS."
    if isinstance(error, ConnectionRefusedError):
        return f"{place} refuses connections. Check the port, and that sshd runs there."
    if isinstance(error, TimeoutError):
        return f"{place} does not answer. Check the address, the network and firewalls."
    return f"{place} cannot be reached: {error.strerror or error}. Check the address and network."


def start(connection: paramiko.Transport, *, timeout_s: float) -> HostKey:
    """Exchange keys and return the host's. Closes the connection when that fails.

    Raises:
        Unreachable: no SSH server, or none that can be agreed with.
    """
    try:
        connection.start_client(timeout=timeout_s)
        key = connection.get_remote_server_key()
    except (paramiko.SSHException, OSError, EOFError) as error:
        connection.close()
        words = "what answers there is no SSH server that RPM can talk to. Check the port and sshd"
        raise Unreachable(f"{words} ({type(error).__name__}: {error}).") from error
    return HostKey(key.get_name(), key.get_base64())


def prefer(connection: paramiko.Transport, pinned: HostKey) -> None:
    """Ask for the kind of key that is pinned; a host with several would show another."""
    options = connection.get_security_options()
    kinds = ("rsa-sha2-512", "rsa-sha2-256") if pinned.kind == "ssh-rsa" else (pinned.kind,)
    others = [kind for kind in options.key_types if kind not in kinds]
    options.key_types = [*(kind for kind in kinds if kind in options.key_types), *others]
