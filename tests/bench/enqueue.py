"""Enqueueing over HTTP, compared with plain INSERT and COMMIT of the same row.

Eight clients, two web processes, a PostgreSQL that keeps its promises to the disk. The two are
measured in turns within one run, so that whatever else the machine does meets both.
"""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

from apps.core.ids import uuid7
from tests.services import ports
from tests.services.postgres import Cluster, running_postgres
from tests.services.redis import running_redis

CLIENTS = 8
PROCESSES = 2
TURNS = 4
TURN_S = 3.0
WARM_UP_S = 2.0
ROOT = Path(__file__).resolve().parents[2]

_INSERT = """
INSERT INTO tasks_task (
    id, queue_id, task_group_id, owner_id, name, content,
    priority, is_preemptible, is_restartable, retries, tags, state, state_detail, generation,
    preemptions, failures, created_at, submitted_at, changed_at
) VALUES (
    %s, %s, %s, %s, 'train', '{"command": ["true"]}',
    0, true, true, 0, '[]', 'queued', '', 0,
    0, 0, now(), now(), now()
)
"""

# What one client does until it has to stop; the number of times that it did it.
Client = Callable[[threading.Event], int]


@dataclass(frozen=True, slots=True)
class Figure:
    """Requests and plain commits per second; `stored` requests were found in the database."""

    requests_per_s: float
    commits_per_s: float
    stored: int

    @property
    def share(self) -> float:
        return self.requests_per_s / self.commits_per_s


@dataclass(frozen=True, slots=True)
class _Installation:
    environment: dict[str, str]
    facts: dict[str, Any]


def measure(*, turns: int = TURNS, turn_s: float = TURN_S) -> Figure:
    """Enqueue requests and plain commits in turns.

    Raises:
        RuntimeError: a request was refused, or an accepted task is not in the database.
    """
    with (
        running_postgres(durable=True) as cluster,
        running_redis() as redis,
        TemporaryDirectory(prefix="rpm-bench-") as home,
    ):
        installation = _install(cluster, redis.url(), home)
        with _web(installation) as port, psycopg.connect(cluster.url()) as connection:
            post = partial(_poster, port, _request(installation.facts))
            _at_once(post, WARM_UP_S)
            task_group_id = _scalar(connection, "SELECT max(id) FROM tasks_taskgroup")
            rows = partial(_inserter, installation.facts, task_group_id, cluster)
            before = _stored(connection)
            posted = inserted = 0
            posting_s = inserting_s = 0.0
            for _ in range(turns):
                count, elapsed = _at_once(post, turn_s)
                posted, posting_s = posted + count, posting_s + elapsed
                count, elapsed = _at_once(rows, turn_s)
                inserted, inserting_s = inserted + count, inserting_s + elapsed
            stored = _stored(connection) - before
            if stored != posted:
                raise RuntimeError(f"{posted} tasks were accepted, {stored} are stored")
    return Figure(posted / posting_s, inserted / inserting_s, stored)


def _install(cluster: Cluster, redis_url: str, home: str) -> _Installation:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RPM_")},
        "DJANGO_SETTINGS_MODULE": "rpm.settings",
        "DATABASE_URL": cluster.url(),
        "REDIS_URL": redis_url,
        "RPM_HOME": home,
        "RPM_LOG_LEVEL": "WARNING",
    }
    command = [sys.executable, "-m", "tests.bench.enqueue_installation"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return _Installation(environment, json.loads(done.stdout))


@contextmanager
def _web(installation: _Installation) -> Iterator[int]:
    """Two web processes with a thread for each client."""
    port = ports.free_port()
    options = [
        *("--bind", f"127.0.0.1:{port}", "--workers", str(PROCESSES)),
        *("--worker-class", "gthread", "--threads", str(CLIENTS), "--keep-alive", "60"),
        *("--log-level", "warning"),
    ]
    command = [sys.executable, "-m", "gunicorn", "rpm.wsgi:application", *options]
    process = subprocess.Popen(command, cwd=ROOT, env=installation.environment)
    try:
        ports.wait_for_server(process, lambda: ports.listens(process, port), what="gunicorn")
        yield port
    finally:
        ports.stop(process, signal=signal.SIGTERM)


def _request(facts: dict[str, Any]) -> bytes:
    body = json.dumps({"name": "train", "queue": facts["queue"], "command": ["true"]}).encode()
    pair = base64.b64encode(f"{facts['key']}:{facts['secret']}".encode()).decode()
    lines = [
        "POST /api/v1/tasks/ HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Basic {pair}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _poster(port: int, request: bytes) -> Client:
    """Sends the request again and again over one connection and reads each answer whole."""

    def post(stop: threading.Event) -> int:
        count = 0
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not stop.is_set():
                connection.sendall(request)
                head, _, body = _read(connection).partition(b"\r\n\r\n")
                if not head.startswith(b"HTTP/1.1 201 "):
                    raise RuntimeError(f"refused: {head!r} {body!r}")
                count += 1
        return count

    return post


def _read(connection: socket.socket) -> bytes:
    """One answer with its length."""
    answer = b""
    while True:
        part = connection.recv(65536)
        if not part:
            raise RuntimeError(f"the server hung up: {answer!r}")
        answer += part
        head, end, body = answer.partition(b"\r\n\r\n")
        if end:
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            if len(body) >= length:
                return answer


def _inserter(facts: dict[str, Any], task_group_id: int, cluster: Cluster) -> Client:
    """Inserts the same row again and again over one connection, committing each."""

    def insert(stop: threading.Event) -> int:
        count = 0
        with psycopg.connect(cluster.url(), autocommit=True) as connection:
            place = (facts["queue_id"], task_group_id, facts["owner_id"])
            while not stop.is_set():
                connection.execute(_INSERT, (uuid7(), *place), prepare=True)
                count += 1
        return count

    return insert


def _at_once(client: Callable[[], Client], seconds: float) -> tuple[int, float]:
    """Let all clients work for some time; how often they did it, in how many seconds.

    Raises:
        RuntimeError: a client failed.
    """
    stop = threading.Event()
    counts: list[int] = []

    def work() -> None:
        counts.append(client()(stop))

    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    stop.wait(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    if len(counts) != CLIENTS:
        raise RuntimeError("a client failed, see above")
    return sum(counts), time.monotonic() - began


def _stored(connection: psycopg.Connection[Any]) -> int:
    """Tasks that came over HTTP: only those have an event."""
    return _scalar(connection, "SELECT count(*) FROM events_event WHERE kind = 'task.queued'")


def _scalar(connection: psycopg.Connection[Any], query: str) -> int:
    row = connection.execute(query).fetchone()
    connection.commit()
    return int(row[0]) if row is not None else 0


def main() -> None:
    figure = measure()
    print(  # noqa: T201  # this is what it is for
        f"enqueue: {figure.requests_per_s:.0f} requests/s with {CLIENTS} clients and {PROCESSES} "
        f"processes; plain INSERT and COMMIT {figure.commits_per_s:.0f}/s; "
        f"share {figure.share:.2f} (aim: at least 0.25)"
    )


if __name__ == "__main__":
    main()
