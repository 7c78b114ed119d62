"""The control plane's own machine as a node."""

import subprocess
import sys

from apps.execution.transport.base import ExchangeFailed, ProgramFailed, Unreachable

ERROR_BYTES = 2000


class LocalTransport:
    """Runs the same helper as a child process.

    Args:
        home: the helper's folder, as `install` answered; empty before the installation.
    """

    def __init__(self, home: str = "") -> None:
        self.home = home

    def exchange(self, request: bytes, *, timeout_s: float) -> bytes:
        """Run the helper once with the request on its standard input."""
        if not self.home:
            raise Unreachable("the helper is not installed on this machine")
        return _run([sys.executable, "-ES", f"{self.home}/helper"], request, timeout_s)

    def install(self, program: bytes, *, timeout_s: float) -> bytes:
        """Install the helper on this machine."""
        return _run([sys.executable, "-"], program, timeout_s)

    def close(self) -> None:
        """There is no connection."""


def _run(command: list[str], content: bytes, timeout_s: float) -> bytes:
    try:
        done = subprocess.run(
            command, input=content, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ExchangeFailed(f"no answer within {timeout_s:g} s") from error
    except OSError as error:
        raise Unreachable(str(error)) from error
    if done.returncode != 0:
        words = done.stderr[-ERROR_BYTES:].decode(errors="replace").strip()
        raise ProgramFailed(f"the helper ended with code {done.returncode}: {words}")
    return done.stdout
