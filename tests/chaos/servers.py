"""PostgreSQL and Redis of a chaos run, which can be killed, paused, filled and started again."""

import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.chaos.machine import children, fill, kill, read
from tests.services import ports
from tests.services.postgres import Cluster
from tests.services.redis import RedisServer
from tools.packages import find_program


@dataclass(slots=True)
class PostgresServer:
    """A cluster that was started elsewhere; after a restart it is this object's process."""

    cluster: Cluster
    own: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.cluster.log.parent / "data"

    @property
    def pid(self) -> int:
        """The postmaster; 0 when there is none."""
        with suppress(OSError, ValueError):
            return int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
        return 0

    def crash(self) -> None:
        """Kill one session's process: the postmaster ends all the others and recovers."""
        sessions = [pid for pid in children(self.pid) if b"rpm" in read(pid, "cmdline")]
        if sessions:
            kill(max(sessions))

    def kill(self) -> None:
        """Every process of it at once, as when the machine loses its power."""
        pids = [self.pid, *children(self.pid)] if self.is_up else []
        for pid in pids:
            kill(pid)
        if self.own is not None:
            self.own.wait()
        elif pids:
            # As long as nobody has heard of its end, the next one takes it for alive.
            with suppress(ChildProcessError):
                os.waitpid(pids[0], 0)

    def ask_to_end(self) -> None:
        """A fast shutdown: sessions are ended first. `is_up` tells when it is done."""
        if self.pid:
            kill(self.pid, signal.SIGINT)

    @property
    def is_up(self) -> bool:
        return bool(self.pid) and is_alive(self.pid)

    def start(self) -> None:
        """Start it again as it was started before; nothing while it runs."""
        if self.is_up:
            return
        owner = self.data.stat()
        command = (self.data / "postmaster.opts").read_text().replace('"', "").split()
        with self.cluster.log.open("ab") as log:
            self.own = subprocess.Popen(
                command,
                cwd=self.data.parent,
                env={"PATH": os.defpath, "HOME": str(self.data.parent), "LC_ALL": "C", "TZ": "UTC"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=owner.st_uid if os.geteuid() == 0 else None,
                group=owner.st_gid if os.geteuid() == 0 else None,
                extra_groups=[] if os.geteuid() == 0 else None,
                start_new_session=True,
                preexec_fn=ports.end_with_parent,  # noqa: PLW1509 - one C call, no lock is taken
            )

    def fill_disk(self, *, is_full: bool) -> None:
        """Its folder lies on a small disk of its own."""
        fill(self.data.parent / "balloon", is_full=is_full)

    def close(self) -> None:
        """End what this object started."""
        if self.own is not None:
            ports.stop(self.own, signal=signal.SIGINT)


@dataclass(slots=True)
class RedisControl:
    """A Redis that was started elsewhere; after a kill it is this object's process."""

    server: RedisServer
    folder: Path
    own: subprocess.Popen[bytes] | None = None
    pid: int = field(default=0)

    def __post_init__(self) -> None:
        with redis.Redis(port=self.server.port) as client:
            self.pid = int(client.info("server")["process_id"])

    def kill(self) -> None:
        """What it knew is gone."""
        kill(self.pid)
        if self.own is not None:
            self.own.wait()

    def start(self) -> None:
        """Start another on the same port; nothing while one runs."""
        if is_alive(self.pid):
            return
        with (self.folder / "redis.log").open("ab") as log:
            self.own = subprocess.Popen(
                [
                    *(find_program("redis-server") or "redis-server", "--bind", "127.0.0.1"),
                    *("--port", str(self.server.port), "--save", "", "--appendonly", "no"),
                    *("--databases", "64", "--dir", str(self.folder)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=ports.end_with_parent,  # noqa: PLW1509 - one C call, no lock is taken
            )
        self.pid = self.own.pid

    def pause(self, *, is_on: bool) -> None:
        kill(self.pid, signal.SIGSTOP if is_on else signal.SIGCONT)

    def flush(self) -> None:
        with suppress(redis.RedisError), self.client() as client:
            client.flushall()

    def client(self) -> redis.Redis:
        """A client that gives up soon."""
        never = Retry(NoBackoff(), 0)
        return redis.Redis(
            port=self.server.port, socket_timeout=1, socket_connect_timeout=1, retry=never
        )

    def close(self) -> None:
        """End what this object started."""
        kill(self.pid, signal.SIGCONT)
        if self.own is not None:
            ports.stop(self.own, signal=signal.SIGTERM)


def is_alive(pid: int) -> bool:
    """Whether there is such a process and it has not ended."""
    state = read(pid, "stat").rpartition(b")")[2].split()
    return bool(state) and state[0] not in {b"Z", b"X"}
