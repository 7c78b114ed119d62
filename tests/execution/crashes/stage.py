"""An installation whose processes are killed at numbered steps: nodes by sshd, and real work."""

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.chaos import workload
from tests.chaos.checker import Breach, check
from tests.chaos.history import (
    AcceptedTask,
    AttemptRow,
    History,
    KilledAttempt,
    TaskRow,
    read_journal,
)
from tests.chaos.machine import boot_clock, kill
from tests.chaos.observation import ATTEMPTS, TASKS
from tests.chaos.servers import is_alive
from tests.services.databases import empty_database
from tests.services.ports import end_with_parent, wait_until
from tests.services.sshd import SshdNode, kill_helpers, running_sshd

ROOT = Path(__file__).resolve().parents[3]
# Steps of the control plane are tried one after the other, with much work on the nodes; those of
# the helper all at once, one on each node.
WIDE, TIGHT, SLOTS = "wide", "tight", 20
NARROW = tuple(f"narrow{number}" for number in range(6))
LANES = {WIDE: 2 * SLOTS, TIGHT: SLOTS, **dict.fromkeys(NARROW, 1)}
GRACE_S = 1
# How long to look at a busy machine, never how fast it is.
PATIENCE_S = 180.0


@dataclass(slots=True)
class Stage:
    """What tests do to the installation, and what they see of it from outside."""

    folder: Path
    sshd: SshdNode
    database: psycopg.Connection[tuple[Any, ...]]
    fork_server: subprocess.Popen[str]
    server: int = 0
    accepted: list[AcceptedTask] = field(default_factory=list)
    unwatched: list[KilledAttempt] = field(default_factory=list)
    settled_s: dict[str, float] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def add_nodes(self, *lanes: str) -> None:
        """The nodes of these lanes: homes of their own behind the one sshd."""
        sshd = self.sshd
        facts = {
            "address": sshd.address,
            "port": sshd.port,
            "user": sshd.user,
            "key_path": str(sshd.key_path),
            "host_key": [sshd.host_key.kind, sshd.host_key.base64],
        }
        self.call(
            *(
                (
                    "add_node",
                    {
                        "lane": lane,
                        "count": LANES[lane],
                        "state_dir": str(self.home(lane)),
                        **facts,
                    },
                )
                for lane in lanes
            )
        )

    def serve(self, crash_at: str = "") -> int:
        """Start the process that decides and serves nodes; its process id."""
        self.server = self._fork({"do": "serve", "crash_at": crash_at})
        return self.server

    def end_server(self) -> None:
        """Ask it to end, which lets go of its nodes."""
        if self.server and kill(self.server, signal.SIGTERM):
            self.await_end(self.server)
        self.server = 0

    def await_end(self, pid: int) -> None:
        wait_until(lambda: not is_alive(pid), what=f"{pid} ends", timeout_s=PATIENCE_S)

    def call(self, *calls: tuple[str, dict[str, Any]], crash_at: str = "") -> list[Any]:
        """Carry out functions of calls.py; what they return, nothing of a process that crashed."""
        if not calls:
            return []
        answer = self.folder / f"answer-{next(self._numbers)}"
        request = {"do": "call", "crash_at": crash_at, "calls": calls, "answer": str(answer)}
        self.await_end(self._fork(request))
        if not answer.exists():
            assert crash_at, f"no answer to {calls}"
            return []
        found = json.loads(answer.read_text())
        assert "error" not in found, found["error"]
        return list(found["results"])

    def submit(self, *wanted: tuple[str, str]) -> list[str]:
        """Ask for work that lasts; the tasks' ids.

        Args:
            wanted: queue, `poor-...` or `rich-...` of a lane, and manner of the work (workload.c).
        """
        calls = [("submit", self._submission(queue, manner)) for queue, manner in wanted]
        tasks = [str(task) for task in self.call(*calls)]
        self.accepted += [AcceptedTask(task, task) for task in tasks]
        return tasks

    def _submission(self, queue: str, manner: str) -> dict[str, Any]:
        lane = queue.partition("-")[2]
        return {
            "queue": queue,
            "command": [str(self.folder / "job"), "3600", "0", manner],
            "environment": {
                "CHAOS_HERE": str(self.here(lane)),
                "CHAOS_LOCKS": str(self.folder / "locks"),
            },
        }

    def abort(self, *tasks: str, crash_at: str = "") -> None:
        self.call(*(("abort", {"task": task}) for task in tasks), crash_at=crash_at)

    def let_end(self, task: str) -> None:
        """Work of the manner `waiter` ends now by itself."""
        (self.folder / "locks" / f"{task}.end").touch()

    def crash_node_at(self, lane: str, point: str) -> None:
        """The next process of this lane's helper that gets there ends there."""
        path = self.home(lane) / "crash-at"
        path.with_suffix(".tmp").write_text(point)
        path.with_suffix(".tmp").rename(path)

    def has_crashed(self, lane: str) -> bool:
        return not (self.home(lane) / "crash-at").exists()

    def here(self, lane: str) -> Path:
        return self.folder / "here" / lane

    def home(self, lane: str) -> Path:
        return Path(self.sshd.home, lane)

    def state(self, task: str) -> str:
        row = self.database.execute("SELECT state FROM tasks_task WHERE id = %s", [task]).fetchone()
        return str(row[0]) if row else "none"

    def counts(self, queue: str) -> dict[str, int]:
        """How much of the queue's work runs, and how much waits."""
        rows = self.database.execute(
            "SELECT t.state FROM tasks_task t JOIN policies_queue q ON q.id = t.queue_id "
            "WHERE q.name = %s",
            [queue],
        ).fetchall()
        states = [str(row[0]) for row in rows]
        return {state: states.count(state) for state in ("running", "queued")}

    def kept(self, lane: str) -> int:
        """Members that have ended and that the lane's node has not dropped yet."""
        row = self.database.execute(
            "SELECT count(*) FROM tasks_member h JOIN tasks_attempt a ON a.id = h.attempt_id "
            "JOIN nodes_node n ON n.id = h.node_id "
            "WHERE n.name = %s AND a.ended_at IS NOT NULL AND NOT h.is_acknowledged",
            [lane],
        ).fetchone()
        return int(row[0]) if row else 0

    def states(self, tasks: list[str]) -> list[str]:
        return [self.state(task) for task in tasks]

    def exit_code(self, task: str) -> int | None:
        """Of the task's last attempt that has ended."""
        row = self.database.execute(
            "SELECT exit_code FROM tasks_attempt WHERE task_id = %s AND ended_at IS NOT NULL "
            "ORDER BY generation DESC LIMIT 1",
            [task],
        ).fetchone()
        return row[0] if row else None

    def is_dropped(self, task: str) -> bool:
        """Whether no node keeps anything of the ended attempts of this task but its fence."""
        row = self.database.execute(
            "SELECT count(*) FROM tasks_member h JOIN tasks_attempt a ON a.id = h.attempt_id "
            "WHERE a.task_id = %s AND a.ended_at IS NOT NULL AND NOT h.is_acknowledged",
            [task],
        ).fetchone()
        kept = list(Path(self.sshd.home).glob(f"*/attempts/{task}_*"))
        return row == (0,) and not kept

    def breaches(self, *, is_over: bool = False) -> tuple[Breach, ...]:
        """Where the promise was broken so far.

        Args:
            is_over: every task has ended, so none may be left.
        """
        history = History(accepted=self.accepted, unwatched=self.unwatched)
        history.tasks = [TaskRow(*row) for row in self.database.execute(TASKS).fetchall()]
        history.attempts = [AttemptRow(*row) for row in self.database.execute(ATTEMPTS).fetchall()]
        for lane in LANES:
            journal = self.here(lane) / "journal"
            if journal.exists():
                history.lives += read_journal(lane, journal.read_text())
        found = check(history).breaches
        return tuple(one for one in found if is_over or one.kind != "lost")

    def starts(self, task: str) -> int:
        """How often the work of this task has begun, by its own words."""
        words = [f" {task} "]
        return sum(
            line.startswith("start") and words[0] in line
            for lane in LANES
            if (self.here(lane) / "journal").exists()
            for line in (self.here(lane) / "journal").read_text().splitlines()
        )

    def open_tasks(self) -> list[str]:
        """Tasks that have not ended."""
        rows = self.database.execute(
            "SELECT id::text FROM tasks_task WHERE state NOT IN ('completed', 'failed', 'aborted')"
        )
        return [str(row[0]) for row in rows.fetchall()]

    def abort_all(self) -> None:
        self.abort(*self.open_tasks())

    def note_unwatched(self, *tasks: str) -> None:
        """The process that waits for this work is killed: its result may be unknown."""
        self.unwatched += [
            KilledAttempt(task, generation, boot_clock())
            for task in tasks
            for generation in (1, 2, 3)
        ]

    def _fork(self, request: dict[str, Any]) -> int:
        assert self.fork_server.stdin is not None
        assert self.fork_server.stdout is not None
        self.fork_server.stdin.write(json.dumps(request) + "\n")
        self.fork_server.stdin.flush()
        return int(json.loads(self.fork_server.stdout.readline())["pid"])


@contextmanager
def opened() -> Iterator[Stage]:
    """Nodes, database and the first process; everything ends with it."""
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="rpm-crashes-", ignore_cleanup_errors=True)
            )
        )
        _folders(folder)
        workload.compile_to(folder / "job")
        sshd = stack.enter_context(running_sshd())
        for lane in LANES:
            stack.callback(kill_helpers, str(Path(sshd.home, lane)))
        url = stack.enter_context(empty_database(folder))
        environment = _environment(url, folder)
        _migrate(environment)
        database = stack.enter_context(psycopg.connect(url, autocommit=True))
        fork_server = stack.enter_context(_fork_server(environment, folder))
        stage = Stage(folder, sshd, database, fork_server)
        stage.call(("install", {"lanes": LANES, "grace_s": GRACE_S}))
        yield stage


def _folders(folder: Path) -> None:
    # The work runs as nobody.
    os.chmod(folder, 0o755)
    for name in ("locks", *(f"here/{lane}" for lane in LANES)):
        (folder / name).mkdir(parents=True)
        os.chmod(folder / name, 0o777)


def _environment(url: str, folder: Path) -> dict[str, str]:
    # Of this run's surroundings only what the suite itself has made: Redis above all.
    return {
        **os.environ,
        "DATABASE_URL": url,
        "RPM_HOME": str(folder / "rpm"),
        "RPM_SYNC_TICK_S": "1",
        "RPM_ALLOW_OWN_ACCOUNT": "1",
        "RPM_PASS_EVERY_S": "1",
        "RPM_LOG_LEVEL": "WARNING",
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore",
    }


def _migrate(environment: dict[str, str]) -> None:
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@contextmanager
def _fork_server(environment: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    with (folder / "log").open("ab") as log:
        fork_server = subprocess.Popen(
            [sys.executable, "-m", "tests.execution.crashes.fork_server"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - one C call, no lock is taken
        )
    try:
        assert fork_server.stdout is not None
        assert "ready" in fork_server.stdout.readline(), (folder / "log").read_text()[-4000:]
        yield fork_server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(fork_server.pid, signal.SIGKILL)
        fork_server.communicate()
