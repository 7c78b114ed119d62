"""A node that cannot be reached, with a real helper behind a real sshd, and one that can."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pytest_django.fixtures import Settings

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.events.models import Event
from apps.execution.node_server.server import NodeServer
from apps.execution.services.node_registration import SimulatedGpus, node_add
from apps.nodes.models import Node, NodeState, Runtime, Transport
from apps.nodes.services import node_declare_off
from apps.policies.models import Queue
from apps.tasks.models import Attempt, Task
from tests.allocation.state import change_content, enqueue
from tests.people import Example
from tests.services.ports import wait_until
from tests.services.sshd import SshdNode, kill_helpers
from tests.services.timeouts import scale_timeout

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]

# Beats into a file of its attempt for as long as it lives; the file is whole at any moment.
BEATS = """
cd "{folder}"
while :; do date +%s.%N > ".$RPM_ATTEMPT"; mv ".$RPM_ATTEMPT" "$RPM_ATTEMPT"; sleep 0.1; done
"""


@pytest.fixture(autouse=True)
def quick(settings: Settings) -> None:
    # Long enough for a busy machine to begin and to renew.
    settings.SYNC_TICK_S = 1
    settings.LEASE_S, settings.NODE_SILENT_S = scale_timeout(12), scale_timeout(3)


@pytest.fixture
def server() -> Iterator[NodeServer]:
    server = NodeServer()
    yield server
    server.stop()
    server.join(timeout_s=scale_timeout(30))


@pytest.fixture
def far(example: Example, ssh_node: SshdNode) -> Node:
    return node_add(
        name="a-far",
        pool=example.bare_metal,
        actor=None,
        host_key=ssh_node.host_key,
        simulated=SimulatedGpus(count=8),
        transport=Transport.SSH,
        address=ssh_node.address,
        port=ssh_node.port,
        user=ssh_node.user,
        key_path=str(ssh_node.key_path),
        runtime=Runtime.PROCESS,
        allows_process=True,
        state_dir=ssh_node.home,
    )


@pytest.fixture
def here(example: Example, tmp_path: Path) -> Iterator[str]:
    home = str(tmp_path / "node")
    node_add(
        name="b-here",
        pool=example.bare_metal,
        actor=None,
        simulated=SimulatedGpus(count=8),
        transport=Transport.LOCAL,
        runtime=Runtime.PROCESS,
        allows_process=True,
        state_dir=home,
    )
    yield home
    kill_helpers(home)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a task may write that runs as nobody: every folder above lets it pass."""
    with TemporaryDirectory(prefix="rpm-beats-") as name:
        folder = Path(name)
        folder.chmod(0o777)  # for nobody
        yield folder
        # A process that still beats would write a file into it while it is removed.
        wait_until(lambda: not end_work_in(folder), what="no process beats any more")


def start(actor: User, queue: Queue, folder: Path) -> Task:
    (task,) = enqueue(actor, queue)
    command = ["/bin/sh", "-c", BEATS.format(folder=folder)]
    change_content(task, command=command)
    run_pass()
    return task


def attempt_state(task: Task, generation: int) -> str:
    found = Attempt.objects.filter(task=task, generation=generation).first()
    return str(found.state) if found else ""


def test_work_on_a_node_that_is_cut_off_ends_there_before_it_begins_elsewhere(
    example: Example,
    alice: User,
    far: Node,
    ssh_node: SshdNode,
    here: str,
    server: NodeServer,
    folder: Path,
) -> None:
    Queue.objects.update(on_node_loss="requeue")
    Node.objects.filter(name="b-here").update(is_draining=True)
    server.start()
    task = start(alice, example.dev_queue, folder)
    wait_until((folder / "1").exists, what="it runs far away", timeout_s=120)
    Node.objects.filter(name="b-here").update(is_draining=False)

    ssh_node.stop()
    wait_until(lambda: attempt_state(task, 1) == "lost", what="it is given up", timeout_s=120)
    last = (folder / "1").read_text()

    wait_until(
        lambda: run_pass() is not None and (folder / "2").exists(),
        what="it runs here",
        timeout_s=60,
    )
    begun = (folder / "2").read_text()
    wait_until(lambda: (folder / "2").read_text() != begun, what="the second one lives")
    assert (folder / "1").read_text() == last
    assert Event.objects.filter(kind="task.queued", data__cause="node_loss").count() == 1
    ssh_node.start()


def test_work_of_a_queue_that_waits_outlives_its_nodes_silence(
    example: Example,
    alice: User,
    far: Node,
    ssh_node: SshdNode,
    server: NodeServer,
    folder: Path,
) -> None:
    server.start()
    task = start(alice, example.dev_queue, folder)
    wait_until(lambda: attempt_state(task, 1) == "running", what="it runs", timeout_s=60)
    wait_until((folder / "1").exists, what="its first beat")
    beat = (folder / "1").read_text()

    ssh_node.stop()
    wait_until(lambda: attempt_state(task, 1) == "suspect", what="it is suspect", timeout_s=120)
    wait_until(lambda: (folder / "1").read_text() != beat, what="it goes on")
    ssh_node.start()

    wait_until(lambda: attempt_state(task, 1) == "running", what="it is found", timeout_s=120)
    assert Attempt.objects.filter(task=task).count() == 1


def test_work_of_a_machine_that_is_declared_off_waits_again_and_ends_if_it_was_not(
    example: Example,
    alice: User,
    root: User,
    far: Node,
    ssh_node: SshdNode,
    server: NodeServer,
    folder: Path,
) -> None:
    server.start()
    task = start(alice, example.dev_queue, folder)
    wait_until(lambda: attempt_state(task, 1) == "running", what="it runs", timeout_s=60)

    ssh_node.stop()
    wait_until(lambda: attempt_state(task, 1) == "suspect", what="it is suspect", timeout_s=120)
    node_declare_off(actor=root, node=far, reason="somebody pulled the plug")

    wait_until(lambda: attempt_state(task, 1) == "lost", what="it is given up", timeout_s=60)
    task.refresh_from_db()
    words = "node_loss: the node was declared switched off."
    assert (task.state, task.state_detail) == ("queued", words)
    # It was said in error: what still runs there is ended before the node gets anything new.
    assert running_in(folder)
    ssh_node.start()
    healthy = Node.objects.filter(pk=far.pk, state=NodeState.HEALTHY, off_at__isnull=True)
    wait_until(healthy.exists, what="the machine answers", timeout_s=120)
    assert not running_in(folder)
    assert Attempt.objects.filter(task=task).count() == 1


def end_work_in(folder: Path) -> list[int]:
    """End the work that beats into this folder; its processes."""
    found = running_in(folder)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found


def running_in(folder: Path) -> list[int]:
    """Processes of the work that beats into this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if BEATS.format(folder=folder).encode() in words:
                found.append(int(entry.name))
    return found
