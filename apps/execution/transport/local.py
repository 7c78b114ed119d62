"""The control plane's own machine as a node."""

import os
import shlex
import subprocess
import sys
import threading
from time import monotonic

from apps.execution.transport.base import ExchangeFailed, ProgramFailed, Unreachable
from apps.execution.transport.channel import (
    CLOSE_TIMEOUT_S,
    CLOSED,
    ChannelTransport,
    HelperChannel,
    HelperPipes,
)

ERROR_BYTES = 2000


class LocalTransport(ChannelTransport):
    """Runs the same helper as a child process.

    Args:
        home: the helper's folder, as `install` answered; empty before the installation.
    """

    def __init__(self, home: str = "") -> None:
        super().__init__()
        self.home = home

    def exchange(self, request: bytes, *, timeout_s: float) -> bytes:
        """The installed helper's answer."""
        if not self.home:
            raise Unreachable("the helper is not installed on this machine")
        if self.has_channel:
            return self._ask_helper(request, monotonic() + timeout_s)
        if self._is_closed:
            raise Unreachable(CLOSED)
        return _run(self._command(), request, timeout_s)

    def install(self, program: bytes, *, timeout_s: float) -> bytes:
        """Install the helper on this machine."""
        return _run([sys.executable, "-"], program, timeout_s)

    def open_pipes(self, *, timeout_s: float) -> tuple[HelperPipes, str]:  # noqa: ARG002  # at once
        """A child process."""
        if not self.home:
            raise Unreachable("the helper is not installed on this machine")
        return _HelperProcess(), shlex.join(self._command())

    def _command(self) -> list[str]:
        return [sys.executable, "-ES", f"{self.home}/helper"]

    def _new_helper(self, _deadline: float) -> tuple[HelperChannel, str]:
        process = _HelperProcess()
        return HelperChannel(process, process.kill), shlex.join(self._command())


class _HelperProcess:
    """A helper as a child process. It ends with its input: also where this process is killed.

    What it has begun goes on by itself, as it does where an SSH connection is cut.
    """

    _process: subprocess.Popen[bytes] | None = None

    def exec_command(self, command: str) -> None:
        pipe = subprocess.PIPE
        # In a session of its own no Ctrl-C in a terminal ends it.
        self._process = subprocess.Popen(
            shlex.split(command),
            bufsize=0,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )

    def sendall(self, s: bytes) -> None:
        left = memoryview(s)
        while left:
            left = left[os.write(self._descriptor("stdin"), left) :]

    def recv(self, nbytes: int) -> bytes:
        content = os.read(self._descriptor("stdout"), nbytes)
        if not content and self._process is not None:
            # It is over, or it answers nothing more.
            self._process.kill()
            self._process.wait()
        return content

    def recv_stderr_ready(self) -> bool:
        return True

    def recv_stderr(self, nbytes: int) -> bytes:
        words = os.read(self._descriptor("stderr"), nbytes)
        for pipe in ("stdin", "stdout", "stderr"):
            getattr(self._process, pipe).close()
        return words

    def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            # It ends with its input; if it does not, it is ended.
            late = threading.Timer(CLOSE_TIMEOUT_S, self._process.kill)
            late.daemon = True
            late.start()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _descriptor(self, name: str) -> int:
        found: int = getattr(self._process, name).fileno()
        return found


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
