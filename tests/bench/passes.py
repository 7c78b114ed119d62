"""A full allocation pass with ever longer queues: it must cost what can run, not what waits.

1,000 queues, 50 pools of 100 nodes with 8 GPUs, all full; 10 thousand, 100 thousand and 1 million
waiting tasks on PostgreSQL, each in a database of its own. Passes alternate between them within
one run, so that whatever else the machine does meets all three. At last passes over the largest
that have something to write: 500 tasks have ended, or a policy claims what it reserves.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from psycopg import sql

from tests.services.postgres import Cluster, running_postgres
from tests.services.redis import running_redis

WAITING = (10_000, 100_000, 1_000_000)
PASSES = 20
BUSY_PASSES = 5
WARM_UP = 3
AIM = 1.5
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "tests.bench.passes_installation"]
PARTS = ("load", "decide", "apply")
BUSY = {"ended": "500 tasks ended", "claimed": "100 GPUs claimed"}


@dataclass(frozen=True, slots=True)
class Figure:
    """Medians, in milliseconds, of a whole pass and its parts, with the number of queries.

    `cpu_ms` is what the process itself worked, without the database: a busy machine changes it
    least.
    """

    name: str
    total_ms: float
    cpu_ms: float
    parts_ms: dict[str, float]
    queries: dict[str, int]
    placed: int
    preempted: int


def measure(*, waiting: tuple[int, ...] = WAITING, passes: int = PASSES) -> list[Figure]:
    """Passes over the same installation with so many waiting tasks.

    Raises:
        RuntimeError: a pass placed something, or left a queue out.
    """
    with (
        running_postgres(durable=True) as cluster,
        running_redis() as redis,
        TemporaryDirectory() as home,
        ExitStack() as stack,
    ):
        environment = os.environ | {
            "DJANGO_SETTINGS_MODULE": "rpm.settings",
            "RPM_HOME": home,
            "RPM_LOG_LEVEL": "ERROR",
            # Hints that a process which ends has not sent any more.
            "PYTHONWARNINGS": "ignore::RuntimeWarning",
            "REDIS_URL": redis.url(),
        }
        databases = _databases(cluster, waiting, environment)
        servers = [
            stack.enter_context(_server(environment | {"DATABASE_URL": url})) for url in databases
        ]
        rows = [_measured(servers, "still") for _ in range(WARM_UP + passes)][WARM_UP:]
        counted = _measured(servers, "still count")
        figures = [
            _figure(f"{count:,} tasks wait", [row[number] for row in rows], counted[number])
            for number, count in enumerate(waiting)
        ]
        return figures + [_busy(servers[-1], command) for command in BUSY]


def _busy(server: subprocess.Popen[str], command: str) -> Figure:
    rows = [_ask(server, command) for _ in range(BUSY_PASSES)]
    return _figure(BUSY[command], rows, _ask(server, f"{command} count"))


def _databases(
    cluster: Cluster, waiting: tuple[int, ...], environment: dict[str, str]
) -> list[str]:
    """One database for each number of tasks, the next one grown from the one before."""
    urls: list[str] = []
    before = "rpm"
    _run(["build"], environment | {"DATABASE_URL": cluster.url(before)})
    for count in waiting:
        name = f"waiting_{count}"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
        with psycopg.connect(cluster.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.format(sql.Identifier(name), sql.Identifier(before)))
        urls.append(cluster.url(name))
        _run(["fill", str(count)], environment | {"DATABASE_URL": urls[-1]})
        before = name
    return urls


def _run(arguments: list[str], environment: dict[str, str]) -> None:
    subprocess.run([*PROGRAM, *arguments], env=environment, cwd=ROOT, check=True)


@contextmanager
def _server(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*PROGRAM, "serve"],
        env=environment,
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            if process.stdin is not None:
                process.stdin.close()


def _measured(servers: list[subprocess.Popen[str]], command: str) -> list[dict[str, float]]:
    return [_ask(server, command) for server in servers]


def _ask(server: subprocess.Popen[str], command: str) -> dict[str, float]:
    if server.stdin is None or server.stdout is None:
        raise RuntimeError("the process has no pipes")
    print(command, file=server.stdin, flush=True)
    line = server.stdout.readline()
    if not line:
        raise RuntimeError("a pass failed, see above")
    found: dict[str, float] = json.loads(line)
    return found


def _figure(name: str, rows: list[dict[str, float]], counted: dict[str, float]) -> Figure:
    def median(part: str) -> float:
        return statistics.median(row.get(part, 0.0) for row in rows)

    return Figure(
        name,
        median("total") * 1000,
        median("cpu") * 1000,
        {part: median(part) * 1000 for part in PARTS},
        {part: round(counted.get(f"{part} queries", 0)) for part in ("total", *PARTS)},
        round(median("placed")),
        round(median("preempted")),
    )
