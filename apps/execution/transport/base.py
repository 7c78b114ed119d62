"""How requests reach a node. Implementations know nothing of what the bytes mean."""

from typing import Protocol

from apps.execution.protocol.bounds import plain


class TransportError(Exception):
    """No answer came back. `may_have_arrived` is False only when surely nothing was sent."""

    may_have_arrived = False

    def __init__(self, message: str) -> None:
        super().__init__(plain(message))


class Unreachable(TransportError):
    """No connection, or the node's sshd refused it."""


class HostKeyRefused(TransportError):
    """The node shows another key than the one pinned; nothing was sent to it.

    Args:
        shown: the SHA-256 fingerprint of the key it showed, for an administrator to judge.
    """

    def __init__(self, message: str, *, shown: str) -> None:
        super().__init__(message)
        self.shown = shown


class MachineRefused(TransportError):
    """It is reached, and is another machine than this node, or a node already."""


class ExchangeFailed(TransportError):
    """The request may have arrived, but no whole answer came: time-out, cut, crash there."""

    may_have_arrived = True


class ProgramFailed(ExchangeFailed):
    """The program ran to its end, and that was a failure; the message has its own words."""


class NodeTransport(Protocol):
    """One node. Safe to use from several threads at once."""

    def exchange(self, request: bytes, *, timeout_s: float) -> bytes:
        """The installed helper's answer.

        Raises:
            TransportError: see its subclasses.
        """

    def install(self, program: bytes, *, timeout_s: float) -> bytes:
        """Run `python3 -` with the program on standard input and return what it printed.

        Raises:
            TransportError: see its subclasses.
        """

    def close(self) -> None:
        """Close the connection for good: every later exchange fails."""
