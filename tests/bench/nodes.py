"""One worker that serves 200 nodes: seconds and CPU per tick.

The nodes are one real sshd with a folder of the helper for each, because 200 servers on one machine
would measure the machine: to the worker they are 200 nodes, with a connection, a conversation and
rows of their own. The cost of the helpers is shown apart; on real nodes each pays its own part.
"""

import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from apps.execution.bundle import install_program
from tests.services.postgres import Cluster, running_postgres
from tests.services.sshd import SshdNode, running_sshd

ROOT = Path(__file__).resolve().parents[2]
NODES = 200
TICK_S = 10
TICKS = 3
# Many connections at once, as after a restart of the worker.
READY_WITHIN_S = 600.0
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Figure:
    """Of one worker over some ticks.

    Args:
        ready_s: from its start until it had heard every node.
        tick_s: between two answers of a node, the median over all nodes.
        worst_s: the longest time between two answers of one node.
        cpu_s: of the worker, per tick.
        helpers_cpu_s: of sshd and the helpers, per tick; theirs in fact.
    """

    nodes: int
    ready_s: float
    tick_s: float
    worst_s: float
    cpu_s: float
    helpers_cpu_s: float
    threads: int
    files: int
    memory_mb: int


def measure(*, nodes: int = NODES, ticks: int = TICKS) -> Figure:
    """Start everything, let it become quiet, and measure so many ticks."""
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with (
        TemporaryDirectory(prefix="rpm-bench-nodes-") as folder,
        running_postgres() as cluster,
        running_sshd() as node,
    ):
        environment = _environment(Path(folder), cluster)
        _manage(environment, "migrate", "--verbosity=0")
        _add_nodes(cluster, node, nodes, Path(folder))
        began = time.monotonic()
        with _serving(environment, Path(folder)) as worker:
            _wait_until_heard(cluster, nodes, worker)
            ready_s = time.monotonic() - began
            return _observe(cluster, node, worker, nodes=nodes, ticks=ticks, ready_s=ready_s)


def _observe(
    cluster: Cluster,
    node: SshdNode,
    worker: subprocess.Popen[bytes],
    *,
    nodes: int,
    ticks: int,
    ready_s: float,
) -> Figure:
    seen: dict[int, list[float]] = {}
    cpu, children = _cpu_s(worker.pid), _descendants_cpu_s(node)
    began = time.monotonic()
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        while time.monotonic() - began < ticks * TICK_S:
            rows = connection.execute(
                "SELECT id, extract(epoch FROM last_seen_at)::float FROM nodes_node"
            ).fetchall()
            for pk, at in rows:
                times = seen.setdefault(pk, [])
                if not times or times[-1] != at:
                    times.append(at)
            time.sleep(0.5)
    spans = [b - a for times in seen.values() for a, b in itertools.pairwise(times)]
    passed = (time.monotonic() - began) / TICK_S
    status = Path(f"/proc/{worker.pid}/status").read_text()
    return Figure(
        nodes=nodes,
        ready_s=ready_s,
        tick_s=statistics.median(spans),
        worst_s=max(spans),
        cpu_s=(_cpu_s(worker.pid) - cpu) / passed,
        helpers_cpu_s=(_descendants_cpu_s(node) - children) / passed,
        threads=_number(status, "Threads"),
        files=len(os.listdir(f"/proc/{worker.pid}/fd")),
        memory_mb=_number(status, "VmRSS") // 1024,
    )


def _environment(folder: Path, cluster: Cluster) -> dict[str, str]:
    return {
        **os.environ,
        "DATABASE_URL": cluster.url(),
        "RPM_HOME": str(folder / "rpm"),
        "RPM_SYNC_TICK_S": str(TICK_S),
        "RPM_ALLOW_OWN_ACCOUNT": "1",
        "RPM_LOG_LEVEL": "WARNING",
        # Nobody listens there: rings are lost, and the loop goes on.
        "REDIS_URL": f"unix://{folder}/nobody.sock",
    }


def _manage(environment: dict[str, str], *arguments: str) -> None:
    command = [sys.executable, "manage.py", *arguments]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)


def _add_nodes(cluster: Cluster, node: SshdNode, nodes: int, folder: Path) -> None:
    """Rows as `node add` makes them, and a helper for each.

    Installed here rather than over SSH, four at a time; the worker installs it once more when it
    meets the node for the first time.
    """
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        key = connection.execute("SELECT key FROM nodes_installation").fetchone()
        assert key is not None
        homes = [str(folder / "nodes" / str(number)) for number in range(nodes)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda home: _install(key[0], home), homes))
        for number, home in enumerate(homes):
            facts = {
                "name": f"node{number:03}",
                "address": node.address,
                "port": node.port,
                "user": node.user,
                "key_path": str(node.key_path),
                "host_key": f"{node.host_key.kind} {node.host_key.base64}",
                "state_dir": home,
                "helper_home": home,
            }
            _insert(connection, facts)


def _insert(connection: psycopg.Connection, facts: dict[str, object]) -> None:
    """A row with these columns and, where the others need something, their empty value."""
    needed = connection.execute(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_name = 'nodes_node' AND is_nullable = 'NO' AND column_default IS NULL "
        "AND is_identity = 'NO'"
    ).fetchall()
    empty = {"jsonb": "{}", "boolean": False, "timestamp with time zone": "now"}
    numbers = {"integer": 0, "bigint": 0, "double precision": 0}
    values = {name: (empty | numbers).get(kind, "") for name, kind in needed}
    values |= {"transport": "ssh", "runtime": "process", "state": "new", "allows_process": True}
    values |= facts
    names = ", ".join(f'"{name}"' for name in values)
    marks = ", ".join(["%s"] * len(values))
    statement = f"INSERT INTO nodes_node ({names}) VALUES ({marks})"
    connection.execute(statement.encode(), list(values.values()))


def _install(installation: str, home: str) -> None:
    program = install_program(installation, home=home)
    subprocess.run([sys.executable, "-"], input=program, check=True, capture_output=True)


@contextmanager
def _serving(environment: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "manage.py", "serve_passes"],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        yield worker
    except RuntimeError as error:
        raise RuntimeError(f"{error}\n{(folder / 'worker.log').read_text()[-3000:]}") from error
    finally:
        worker.terminate()
        worker.wait(60)


def _wait_until_heard(cluster: Cluster, nodes: int, worker: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + READY_WITHIN_S
    asked = "SELECT count(*) FROM nodes_node WHERE state = 'healthy' AND last_seen_at IS NOT NULL"
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        while True:
            row = connection.execute(asked).fetchone()
            heard = row[0] if row else 0
            if heard == nodes:
                return
            if worker.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{heard} of {nodes} nodes were heard")
            time.sleep(0.2)


def _cpu_s(pid: int) -> float:
    """CPU of a process and of those of its children that are over."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / CLOCK_TICKS


def _descendants_cpu_s(node: SshdNode) -> float:
    """CPU of sshd, the sessions it has, and the helpers that they started and that are over."""
    if node.process is None:
        return 0.0
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(path.name))
    total, open_ends = 0.0, [node.process.pid]
    while open_ends:
        pid = open_ends.pop()
        try:
            total += _cpu_s(pid)
        except OSError:
            continue
        open_ends += parents.get(pid, [])
    return total


def _number(status: str, field: str) -> int:
    line = next(line for line in status.splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1])
