"""Free ports on loopback, and servers that start, answer and end."""

import ctypes
import signal as signals
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import psutil  # type: ignore[import-untyped]  # its stubs are a package of their own

from tests.services.timeouts import scale_timeout

LIBC = ctypes.CDLL(None)
# From linux/prctl.h: the signal that a process gets when its parent ends.
PR_SET_PDEATHSIG = 1


class ServerDidNotStart(Exception):
    """A server ended, or did not answer in time; the message holds its last words."""


def free_port() -> int:
    """A TCP port on 127.0.0.1 on which no process listens now.

    Another process may take it first: a caller whose server cannot bind tries the next port.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def accepts(port: int) -> bool:
    """Whether a process, any, accepts connections on this port of 127.0.0.1."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def listens(process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether this process itself listens on this TCP port.

    That something accepts there is not enough: another test's server may have taken the port
    while this process started, and this one is about to end for that.
    """
    try:
        own = psutil.Process(process.pid).net_connections(kind="tcp")
    except psutil.Error:
        return False
    return any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in own)


def wait_until(condition: Callable[[], bool], *, what: str, timeout_s: float = 30) -> None:
    """Ask every 20 ms until the condition holds.

    Args:
        timeout_s: the bound on a quiet machine (`timeouts.py`), as everywhere here.

    Raises:
        TimeoutError: it did not within the time; the message names `what`.
    """
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > scale_timeout(timeout_s):
            raise TimeoutError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(0.02)


def wait_for_server(
    process: subprocess.Popen[bytes],
    is_ready: Callable[[], bool],
    *,
    what: str,
    timeout_s: float = 30,
) -> None:
    """Wait until a server that was just started answers.

    Raises:
        ServerDidNotStart: it ended first, or took too long.
    """

    def ended_or_ready() -> bool:
        return process.poll() is not None or is_ready()

    try:
        wait_until(ended_or_ready, what=what, timeout_s=timeout_s)
    except TimeoutError as error:
        raise ServerDidNotStart(str(error)) from error
    if process.poll() is not None:
        raise ServerDidNotStart(f"{what} ended with status {process.returncode}")


def end_with_parent() -> None:
    """For `preexec_fn`: a server must not outlive tests that were killed and could not stop it."""
    if sys.platform == "linux":
        LIBC.prctl(PR_SET_PDEATHSIG, signals.SIGTERM)


def stop(process: subprocess.Popen[bytes], *, signal: int, timeout_s: float = 10) -> None:
    """Ask a server to end, and end it when it does not."""
    if process.poll() is None:
        process.send_signal(signal)
    try:
        process.wait(scale_timeout(timeout_s))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
