"""A backup is restored while nodes continue: no task of theirs is lost, and none runs twice."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.database_queries import asking
from tests.end_to_end.installation import ROOT, Client, Installation, installed, until
from tests.services.timeouts import scale_timeout

PASSWORD = "correct-horse-battery"
# Notes that it began, works until its file appears, and notes that it ended.
WORK = "echo began >> {0}; while [ ! -e {0}.go ]; do sleep 0.2; done; echo over >> {0}"
CONFIRM = "from apps.nodes.services import restore_confirm; restore_confirm(actor=None)"
STATE = "SELECT state FROM tasks_task WHERE id = %s"
UNKNOWN = "SELECT max(unknown_work) FROM nodes_node"


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that tasks may write to: they run as nobody."""
    with tempfile.TemporaryDirectory(prefix="rpm-test-shared-") as name:
        os.chmod(name, 0o777)
        yield Path(name)


def test_work_on_nodes_survives_a_restored_backup_and_is_not_done_twice(
    database_url: str, tmp_path: Path, shared: Path
) -> None:
    file = tmp_path / "backup"
    with installed(tmp_path, database_url) as installation:
        root, client = configured(installation, tmp_path)
        running = enqueue(client, shared / "running")
        until(lambda: lines(shared / "running"), what="the first task runs")
        until(lambda: client.get(f"/tasks/{running['id']}/")["state"] == "running", what="it does")
        root.patch("/configuration/", {"is_enabled": False})
        waiting = enqueue(client, shared / "waiting")

        installation.manage("backup", str(file))
        root.patch("/configuration/", {"is_enabled": True})
        unknown = enqueue(client, shared / "unknown")
        until(lambda: lines(shared / "waiting"), what="what waited in the backup runs")
        until(lambda: lines(shared / "unknown"), what="what the backup does not know runs")

    installation.manage("restore", str(file), "--replace")
    with asking(database_url) as ask:
        # Only the restored backup prevents that waiting tasks are started again.
        ask("UPDATE policies_livestate SET is_enabled = true")

    with serving(installation, tmp_path), asking(database_url) as ask:
        assert ask("SELECT count(*) FROM tasks_task WHERE id = %s", unknown["id"]) == 0
        until(lambda: ask(UNKNOWN) == 2, what="the unknown work is reported")
        (shared / "running.go").touch()
        until(lambda: ask(STATE, running["id"]) == "completed", what="its result is taken")

        assert lines(shared / "running") == ["began", "over"]
        assert ask("SELECT generation FROM tasks_task WHERE id = %s", running["id"]) == 1
        # Tasks that the database does not know continue; tasks that wait in it do not start again.
        assert lines(shared / "unknown") == ["began"]
        assert lines(shared / "waiting") == ["began"]
        assert ask(STATE, waiting["id"]) == "queued"
        assert ask("SELECT restored_at IS NOT NULL FROM nodes_installation")
        (shared / "unknown.go").touch()
        (shared / "waiting.go").touch()
        until(lambda: lines(shared / "unknown") == ["began", "over"], what="it ends by itself")
        until(lambda: lines(shared / "waiting") == ["began", "over"], what="that, too")

        installation.manage("shell", "-c", CONFIRM)
        until(lambda: ask(STATE, waiting["id"]) == "completed", what="passes go on")

        # The database does not know its first attempt; the node has kept both apart.
        assert lines(shared / "waiting") == ["began", "over"] * 2
        assert lines(shared / "unknown") == ["began", "over"]
        assert ask(UNKNOWN) == 0
        assert not ask("SELECT restored_at IS NOT NULL FROM nodes_installation")


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def enqueue(client: Client, place: Path) -> Any:
    command = ["sh", "-c", WORK.format(place)]
    return client.post("/tasks/", {"name": place.name, "queue": "team-one", "command": command})


def configured(installation: Installation, folder: Path) -> tuple[Client, Client]:
    """An administrator, and a user of a pool with capacity for three on this machine."""
    root = installation.person("root", "Admins", password=PASSWORD)
    user = installation.person("alice", "team", password=PASSWORD)
    version = root.http.get("/configuration/draft/").headers["ETag"]
    document = {
        "pools": [{"name": "Pool", "capacity": 3}],
        "profiles": [{"name": "One", "request": 1, "pools": [{"pool": "Pool"}]}],
    }
    root.put("/configuration/draft/", document, **{"If-Match": version})
    root.post("/configuration/draft/provision/", {"note": "For restoring."})
    policy = root.post("/policies/", {"name": "Team", "group": "team", "reserved": 3})
    root.post(f"/policies/{policy['id']}/profiles/", {"profile": "One"})
    installation.manage(
        *("node", "add", "here", "--pool", "Pool", "--local", "--runtime", "process"),
        *("--allow-process", "--state-dir", str(folder / "here"), "--simulated-gpus", "3"),
    )
    return root, user


@contextmanager
def serving(installation: Installation, folder: Path) -> Iterator[None]:
    """Runs passes and serves nodes in a simple loop."""
    with (folder / "serving.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "serve_passes"],
            cwd=ROOT,
            env=installation.environment,
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(scale_timeout(60))
