"""One side of `execution.py`: an installation as its users have it, with one node over SSH.

Web, worker with beat, and Redis as `manage.py up` starts them, PostgreSQL that keeps its promises,
every interval as it is set by default: a figure must not live on a beat that somebody shortened.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from tests.bench.execution_stage import SCRIPTS, Stage, wait_until
from tests.end_to_end.installation import Client, Installation, installed
from tests.services.podman import PodmanStore, podman_store
from tests.services.postgres import running_postgres
from tests.services.sshd import SshdNode, running_sshd

POOL = "One GPU"
PASSWORD = "correct-horse-battery"  # of an installation that lives for some minutes
DEFAULTS = {"RPM_SYNC_TICK_S": "10", "RPM_PASS_EVERY_S": "5", "RPM_LOG_LEVEL": "WARNING"}
# The team that borrows the only GPU, and the team that reserves it.
LENDER, BORROWER = "research", "dev"
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_FIRST_PIECE = """
SELECT p.data FROM tasks_attemptlog p JOIN tasks_attempt a ON a.id = p.attempt_id
WHERE a.task_id = %s AND a.generation = 1 AND p."offset" = 0
"""
_LEFT = """
SELECT count(*) FROM tasks_member h
WHERE released_at IS NULL OR NOT is_acknowledged
"""
_STEPS = """
SELECT extract(epoch FROM t.submitted_at)::float, extract(epoch FROM a.allocated_at)::float,
    extract(epoch FROM h.launched_at)::float, extract(epoch FROM h.started_at)::float
FROM tasks_task t JOIN tasks_attempt a ON a.task_id = t.id JOIN tasks_member h
    ON h.attempt_id = a.id
WHERE t.id = %s AND a.generation = 1
"""


class Sent(NamedTuple):
    """A task, and the gate that it has."""

    id: str
    gate: str


@dataclass(frozen=True, slots=True)
class Managed:
    """The same verbs as by hand, asked over REST."""

    stage: Stage
    installation: Installation
    clients: dict[str, Client]
    root: Client
    database: psycopg.Connection

    def run(self, team: str, program: str) -> Sent:
        """Enqueue a task with a gate of its own."""
        gate = f"gate-{len(os.listdir(self.stage.gates))}"
        self.stage.make_gate(gate)
        body = {
            "name": gate,
            "queue": f"{team}-1xgpu",
            "image": self.stage.podman.image,
            "command": ["/bin/sh", "-c", SCRIPTS[program]],
            "environment": {"GATE": gate},
            "volumes": ["gates"],
        }
        return Sent(self.clients[team].post("/tasks/", body)["id"], gate)

    def first_line_s(self, task: Sent) -> float:
        """When the row with its first line was committed: API and page answer from it."""

        def is_there() -> bool:
            return self.database.execute(_FIRST_PIECE, [task.id]).fetchone() is not None

        return wait_until(is_there, what=f"{task.gate} has written a line")

    def lines(self, team: str, task: Sent) -> list[float]:
        """What it wrote, by the API; moments of its own."""
        path = f"/tasks/{task.id}/logs/"
        text = self.clients[team].http.get(path, params={"as": "text"}).text
        return [float(line.split()[0]) for line in text.splitlines()]

    def abort(self, team: str, task: Sent) -> None:
        """As a user does."""
        self.clients[team].post(f"/tasks/{task.id}/abort/")

    def open_gate(self, task: Sent) -> None:
        """Let it end."""
        self.stage.open_gate(task.gate)

    def set_grace(self, team: str, grace_s: int) -> None:
        """How long the tasks of a queue may take to end when they are asked to."""
        self.root.patch(f"/queues/{team}-1xgpu/", {"grace_s": grace_s})

    def await_waiting(self, task: Sent) -> None:
        """Until a pass has looked at it, and has not placed it."""
        looked = "SELECT last_at > t.submitted_at, t.state FROM allocation_passstate, tasks_task t"
        looked += " WHERE t.id = %s"

        def is_waiting() -> bool:
            return self._row(looked, task.id) == (True, "queued")

        wait_until(is_waiting, what=f"{task.gate} waits")

    def await_quiet(self) -> None:
        """Until nothing is held, and the node has dropped every result."""
        wait_until(lambda: self._row(_LEFT) == (0,) and self.stage.is_bare(), what="it is quiet")

    def steps_s(self, task: Sent) -> tuple[float, float, float]:
        """From its submission to its place, on to its launch, and to its start on the node."""
        submitted, placed, launched, started = self._row(_STEPS, task.id)
        return placed - submitted, launched - placed, started - launched

    def cpu_s(self) -> float:
        """What web, worker, beat and Redis have worked so far."""
        mark = f"RPM_HOME={self.installation.folder / 'home'}".encode()
        return sum(_cpu_s(path) for path in Path("/proc").iterdir() if _has(path, mark))

    def _row(self, statement: str, *parameters: object) -> tuple[Any, ...]:
        row = self.database.execute(statement.encode(), parameters).fetchone()
        if row is None:
            raise RuntimeError(f"nothing was found: {statement}")
        return row


@contextmanager
def opened() -> Iterator[tuple[Managed, SshdNode]]:
    """Everything running and configured; ended and removed afterwards."""
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rpm-bench-")))
        gates = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rpm-bench-gates-")))
        os.chmod(gates, 0o755)
        cluster = stack.enter_context(running_postgres(durable=True))
        podman = stack.enter_context(podman_store())
        node = stack.enter_context(running_sshd())
        installation = stack.enter_context(installed(folder, cluster.url(), **DEFAULTS))
        stage = Stage(podman, gates)
        root = installation.person("root", "Admins", password=PASSWORD)
        clients = {
            team: installation.person(f"of-{team}", team, password=PASSWORD)
            for team in (LENDER, BORROWER)
        }
        _configure(root, gates)
        _add_node(installation, node, podman)
        database = stack.enter_context(psycopg.connect(cluster.url(), autocommit=True))
        yield Managed(stage, installation, clients, root, database), node


def _configure(root: Client, gates: Path) -> None:
    volume = {"name": "gates", "path": str(gates), "is_read_only": True, "scope": "everywhere"}
    root.post("/volumes/", volume)
    version = root.http.get("/configuration/draft/").headers["ETag"]
    pools = [{"pool": POOL}]
    document = {
        "pools": [{"name": POOL, "capacity": 1}],
        "profiles": [{"name": "1xGPU", "request": 1, "pools": pools, "volumes": ["gates"]}],
    }
    root.put("/configuration/draft/", document, **{"If-Match": version})
    root.post("/configuration/draft/provision/", {"note": "For measuring."})
    for team, reserved in ((LENDER, 1), (BORROWER, 0)):
        body = {"name": team.capitalize(), "group": team, "reserved": reserved}
        policy = root.post("/policies/", body)
        root.post(f"/policies/{policy['id']}/profiles/", {"profile": "1xGPU"})


def _add_node(installation: Installation, node: SshdNode, podman: PodmanStore) -> None:
    variables = [f"--env={key}={value}" for key, value in podman.environment.items()]
    installation.manage(
        *("node", "add", "node", "--pool", POOL, "--address", node.address),
        *("--port", str(node.port), "--user", node.user, "--key", str(node.key_path)),
        *("--fingerprint", node.host_key.fingerprint, "--runtime", "podman"),
        *("--state-dir", node.home, "--simulated-gpus", "1"),
        *variables,
    )


def _has(process: Path, mark: bytes) -> bool:
    try:
        return process.name.isdigit() and mark in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _cpu_s(process: Path) -> float:
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(field) for field in fields[11:13]) / CLOCK_TICKS
