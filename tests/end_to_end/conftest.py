"""Fixtures of installations and running tasks that several tests share."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.db import connections

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.dashboard import stream_socket
from apps.nodes.models import Installation, Runtime, Transport
from apps.tasks.models import Attempt, Task
from rpm.asgi import application
from tests.allocation.state import begin, enqueue, make_node
from tests.end_to_end.running_task import RunningTask
from tests.execution.node.test_containers import container
from tests.execution.nodes import (
    INSTALLATION,
    TestedNode,
    installed_local,
    installed_ssh,
    member_of,
)
from tests.people import Example
from tests.services.asgi_server import running_asgi
from tests.services.podman import PodmanStore
from tests.services.sshd import SshdNode, kill_helpers
from tests.services.timeouts import MOST

# What busybox has no other server for: it answers each connection with its own bytes.
RUNS = ("sh", "-c", "nc -ll -p 8888 -e cat & echo ready; exec sleep 600")
WAITS = ("sh", "-c", "echo ready; exec sleep 600")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that containers may write to; no user in them is root."""
    with tempfile.TemporaryDirectory(prefix="rpm-test-shared-") as name:
        folder = Path(name)
        journal = folder / "journal"
        journal.touch()
        os.chmod(journal, 0o666)
        os.chmod(folder, 0o755)
        yield folder


@pytest.fixture
def url() -> Iterator[str]:
    """The server in a thread of this process. A busy machine's database is slow, not away."""
    # Of the thread that queries the database for it: the database is dropped next.
    close = database_sync_to_async(connections.close_all)
    # As in compose.yaml: a task that reads slowly is no reason to cut it off.
    options = {"ws_max_size": 65536, "ws_ping_timeout": 3600}
    with (
        pytest.MonkeyPatch.context() as patch,
        running_asgi(application, at_end=close, **options) as server,
    ):
        for name in ("UNCHECKED_S", "RECORD_S"):
            patch.setattr(stream_socket, name, getattr(stream_socket, name) * MOST)
        yield f"http://127.0.0.1:{server.config.port}"


@pytest.fixture
def process(example: Example, alice: User, url: str, tmp_path: Path) -> Iterator[RunningTask]:
    """Without a container, on this machine."""
    home = str(tmp_path / "node")
    node = installed_local(home)
    make_node(example.bare_metal, name="b1", helper_home=home, allows_process=True)
    task = _admitted(alice, example)
    request = node.launch_request(*WAITS, task_id=str(task.pk))
    yield _launched(task, node, request, url)
    node.stop(member_of(request), is_kill=True)
    kill_helpers(home)


@pytest.fixture
def contained(
    example: Example, alice: User, url: str, ssh_node: SshdNode, podman: PodmanStore
) -> Iterator[RunningTask]:
    """In a container, behind sshd."""
    node = installed_ssh(ssh_node, podman.environment)
    make_node(
        example.bare_metal,
        name="b1",
        runtime=Runtime.PODMAN,
        transport=Transport.SSH,
        address=ssh_node.address,
        port=ssh_node.port,
        user=ssh_node.user,
        key_path=str(ssh_node.key_path),
        host_key=f"{ssh_node.host_key.kind} {ssh_node.host_key.base64}",
        helper_home=ssh_node.home,
    )
    task = _admitted(alice, example, image="registry/train:1")
    request = container(node, podman, *RUNS, task_id=str(task.pk))
    yield _launched(task, node, request, url)
    node.stop(member_of(request), is_kill=True)
    # No node server removes it, and other tests share the store.
    podman.run("rm", "--all", "--force", "--time=0")


def _admitted(alice: User, example: Example, **changes: Any) -> Task:
    Installation.objects.update(key=INSTALLATION)
    (task,) = enqueue(alice, example.dev_queue, **changes)
    run_pass()
    begin(Attempt.objects.get())
    task.refresh_from_db()
    return task


def _launched(task: Task, node: TestedNode, request: Any, url: str) -> RunningTask:
    node.client.launch(request)
    node.wait_for_log(member_of(request), b"ready")
    return RunningTask(task, node, url, request)
