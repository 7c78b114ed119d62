"""Reads what a run left: database rows by plain SQL, journals, processes, containers, folders.

Nothing of the code under test is used, so that its mistakes cannot hide here.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal

import psycopg

from tests.chaos.history import (
    AttemptRow,
    History,
    Leftover,
    NodeDown,
    TaskRow,
    UsageRow,
    read_journal,
)
from tests.chaos.machine import read
from tests.chaos.nodes import ChaosNode
from tools.packages import find_program

TASKS = """
SELECT t.id::text, t.state, t.exit_code, t.generation, t.retries, t.state_detail,
       coalesce((SELECT q.on_node_loss FROM tasks_attempt a JOIN policies_queue q
                 ON q.id = a.queue_id WHERE a.task_id = t.id
                 ORDER BY a.generation DESC LIMIT 1), 'wait')
FROM tasks_task t
"""
ATTEMPTS = """
SELECT a.task_id::text, a.generation, a.state, a.exit_code, a.stop_target, a.detail,
       (SELECT count(*) FROM tasks_member h
        WHERE h.attempt_id = a.id AND h.released_at IS NULL)
     + (SELECT count(*) FROM tasks_helddevice d JOIN tasks_member h ON h.id = d.member_id
        WHERE h.attempt_id = a.id AND d.released_at IS NULL)
FROM tasks_attempt a
"""
# Millionths of GPU seconds; a node's clock may say that a task ended before it was admitted.
USAGE = """
WITH ledger AS (
    SELECT policy_id, count(*) AS admitted, count(ended_at) AS ended,
        sum((request->>'gpu')::bigint * replicas * greatest(0,
            floor(extract(epoch FROM ended_at) * 1000)
            - floor(extract(epoch FROM allocated_at) * 1000))) AS held
    FROM tasks_attempt GROUP BY policy_id),
sums AS (
    SELECT '{table}' AS name, policy_id, sum(held) AS held, sum(admitted) AS admitted,
        sum(ended) AS ended
    FROM {table} GROUP BY policy_id)
SELECT '{table}', p.name, ARRAY[coalesce(l.held, 0), coalesce(l.admitted, 0), coalesce(l.ended, 0)],
    ARRAY[coalesce(s.held, 0), coalesce(s.admitted, 0), coalesce(s.ended, 0)]
FROM policies_policy p LEFT JOIN ledger l ON l.policy_id = p.id
LEFT JOIN sums s ON s.policy_id = p.id ORDER BY p.name
"""
USAGE_TABLES = ("usage_policyhour", "usage_policyday", "usage_queueday", "usage_ownerday")
OPEN = """
SELECT state || ': ' || count(*) FROM tasks_task
WHERE state IN ('queued', 'allocated', 'running', 'stopping', 'draft', 'paused', 'rejected')
GROUP BY state ORDER BY state
"""


def observe(history: History, *, url: str, nodes: Iterable[ChaosNode]) -> History:
    """Add what database and nodes know to what the client and the run noted."""
    nodes = list(nodes)
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        history.tasks = [TaskRow(*row) for row in connection.execute(TASKS).fetchall()]
        history.attempts = [AttemptRow(*row) for row in connection.execute(ATTEMPTS).fetchall()]
        for table in USAGE_TABLES:
            rows = connection.execute(USAGE.format(table=table)).fetchall()
            history.usage += [
                UsageRow(name, policy, _whole(ledger), _whole(sums))
                for name, policy, ledger, sums in rows
            ]
    for node in nodes:
        if node.journal.exists():
            history.lives += read_journal(node.name, node.journal.read_text())
        history.downs += [NodeDown(node.name, at) for at in node.downs]
        history.leftovers += leftovers(node)
    return history


def _whole(figures: Sequence[Decimal]) -> tuple[int, int, int]:
    held, admitted, ended = map(int, figures)
    return held, admitted, ended


def open_tasks(url: str) -> list[str]:
    """Which states are left that are not the end, with how many tasks; empty when all is over."""
    # A server without a free byte may take the connection and never answer.
    patience = "-c statement_timeout=2000"
    with psycopg.connect(url, autocommit=True, connect_timeout=2, options=patience) as connection:
        return [str(row[0]) for row in connection.execute(OPEN).fetchall()]


def leftovers(node: ChaosNode) -> list[Leftover]:
    """What is there of tasks, now that all of them have ended."""
    return [*_processes(node), *_containers(node), *_folders(node)]


def _processes(node: ChaosNode) -> Iterator[Leftover]:
    for pid in node.pids():
        name = read(pid, "comm").decode().strip()
        command = read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace")
        parent = read(pid, "stat").rpartition(b")")[2].split()[1:2]
        is_detached = parent == [str(node.init).encode()] and str(node.home) in command
        if name in {"job", "conmon"} or is_detached:
            yield Leftover(node.name, "process", f"{pid} {name}: {command[:200]}")


def _containers(node: ChaosNode) -> Iterator[Leftover]:
    if node.store is None:
        return
    listed = subprocess.run(
        [
            *("nsenter", f"--target={node.init}", "--net", "--mount", "--pid"),
            *(find_program("podman") or "podman", "ps", "--all", "--format={{.Names}} {{.Status}}"),
        ],
        env=os.environ | node.environment,
        capture_output=True,
        check=False,
        timeout=60,
    )
    for line in listed.stdout.decode().splitlines():
        if line.startswith("rpm-"):
            yield Leftover(node.name, "container", line)


def _folders(node: ChaosNode) -> Iterator[Leftover]:
    """Attempts that the helper still keeps although their results were taken."""
    folder = node.home / "attempts"
    for path in sorted(folder.glob("*_*")):
        yield Leftover(node.name, "folder", path.name)
