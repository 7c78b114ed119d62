"""Serving nodes: a real helper on this machine, real processes, threads and PostgreSQL."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import OperationalError
from django.utils import timezone
from pytest_django.fixtures import Settings

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.events.models import Event
from apps.execution.node import files
from apps.execution.node_server import loop as server_loop
from apps.execution.node_server import server as server_module
from apps.execution.node_server.identity import is_dead, process_token
from apps.execution.node_server.server import NodeServer
from apps.execution.services.node_registration import SimulatedGpus, node_add
from apps.execution.services.restore_detection import database_trust
from apps.nodes.models import Node, NodeState, Runtime, Transport
from apps.policies.models import Queue
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.selectors.attempts import log_from
from apps.tasks.services.stop import task_abort
from tests.allocation.state import change_content, enqueue
from tests.people import Example
from tests.services.ports import wait_until
from tests.services.sshd import SshdNode, kill_helpers
from tests.services.timeouts import scale_timeout

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]

StartServer = Callable[[], NodeServer]


@pytest.fixture(autouse=True)
def quick(settings: Settings) -> None:
    settings.SYNC_TICK_S = 1


@pytest.fixture
def node(example: Example, tmp_path: Path) -> Iterator[Node]:
    """This machine as a node with eight simulated devices and plain processes."""
    home = str(tmp_path / "node")
    yield node_add(
        name="here",
        pool=example.bare_metal,
        actor=None,
        simulated=SimulatedGpus(count=8),
        transport=Transport.LOCAL,
        runtime=Runtime.PROCESS,
        allows_process=True,
        state_dir=home,
    )
    kill_helpers(home)


@pytest.fixture
def start_server() -> Iterator[StartServer]:
    servers: list[NodeServer] = []

    def start() -> NodeServer:
        servers.append(NodeServer())
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        end(server)


def end(server: NodeServer) -> None:
    """Stop it, and wait for its threads: they hold connections to a database that goes."""
    server.stop()
    server.join(timeout_s=scale_timeout(20))


def submit(actor: User, queue: Queue, script: str) -> Task:
    (task,) = enqueue(actor, queue)
    change_content(task, command=["/bin/sh", "-c", script])
    run_pass()
    return task


def state_of(task: Task) -> str:
    return str(Task.objects.values_list("state", flat=True).get(pk=task.pk))


def log_of(task: Task) -> bytes:
    attempt = Attempt.objects.filter(task=task).first()
    return log_from(attempt, rank=0, offset=0).data if attempt else b""


def wait_for(task: Task, state: str) -> None:
    wait_until(lambda: state_of(task) == state, what=f"{task.name} {state}")


def test_a_task_is_launched_followed_and_its_result_and_log_are_stored(
    example: Example, alice: User, node: Node, start_server: StartServer
) -> None:
    server = start_server()
    task = submit(alice, example.dev_queue, 'echo "on $RPM_DEVICES"; exit 3')
    server.wake()

    wait_for(task, "failed")

    attempt = Attempt.objects.get(task=task)
    assert (attempt.state, attempt.exit_code) == ("finished", 3)
    devices = [f"SIM-{node.pk}-{index}" for index in range(4)]
    assert log_of(task).decode() == f"on {','.join(devices)}\n"
    # Only once that is committed may the node drop its own copy.
    wait_until(lambda: Member.objects.get().is_acknowledged, what="the node has dropped it")


def test_an_end_is_known_at_once_and_not_at_the_next_tick(
    example: Example,
    alice: User,
    node: Node,
    start_server: StartServer,
    settings: Settings,
) -> None:
    settings.SYNC_TICK_S = 60
    server = start_server()
    task = submit(alice, example.dev_queue, "sleep 1; date +%s")
    server.wake()

    wait_for(task, "completed")

    assert time.time() - float(log_of(task)) < min(scale_timeout(5), 45)


def test_a_running_task_stops_within_its_grace_period(
    example: Example, alice: User, node: Node, start_server: StartServer
) -> None:
    server = start_server()
    task = submit(
        alice,
        example.dev_queue,
        "trap 'echo saved; exit 9' TERM; echo ready; while :; do sleep 0.05; done",
    )
    server.wake()
    wait_until(lambda: b"ready" in log_of(task), what="it runs")

    task_abort(actor=alice, task=Task.objects.get(pk=task.pk))
    server.wake()
    wait_for(task, "aborted")

    assert log_of(task).startswith(b"ready\n")
    assert log_of(task).endswith(b"saved\n")
    assert Attempt.objects.get(task=task).exit_code == 9


def test_a_task_that_ignores_the_request_is_killed_after_the_grace_period(
    example: Example, alice: User, node: Node, start_server: StartServer
) -> None:
    Queue.objects.filter(pk=example.dev_queue.pk).update(grace_s=1)
    server = start_server()
    task = submit(alice, example.dev_queue, "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    server.wake()
    wait_until(lambda: b"ready" in log_of(task), what="it runs")

    task_abort(actor=alice, task=Task.objects.get(pk=task.pk))
    server.wake()
    wait_for(task, "aborted")

    assert Attempt.objects.get(task=task).exit_code == 137


def test_a_task_that_uses_up_its_time_limit_is_stopped_and_fails(
    example: Example, alice: User, node: Node, start_server: StartServer
) -> None:
    server = start_server()
    task = submit(alice, example.dev_queue, "echo ready; sleep 60")
    Task.objects.filter(pk=task.pk).update(time_limit_s=1)
    server.wake()

    wait_for(task, "failed")

    assert Task.objects.get(pk=task.pk).state_detail == "Its time limit of 1 s is over."
    attempt = Attempt.objects.get(task=task)
    assert attempt.stop_asked_at is not None
    assert attempt.started_at is not None
    assert attempt.stop_asked_at - attempt.started_at >= timedelta(seconds=1)


def test_of_two_servers_one_serves_a_node_and_the_other_takes_over(
    example: Example, alice: User, node: Node, start_server: StartServer
) -> None:
    first = start_server()
    wait_until(lambda: served_by(node) == first.token, what="the first serves")
    second = start_server()
    second.wake()
    task = submit(alice, example.dev_queue, "echo once; sleep 2")
    for server in (first, second):
        server.wake()
    wait_for(task, "running")
    assert served_by(node) == first.token

    end(first)
    second.wake()

    wait_until(lambda: served_by(node) == second.token, what="the second serves")
    wait_for(task, "completed")
    assert log_of(task) == b"once\n"
    assert Attempt.objects.filter(task=task).count() == 1


def test_a_node_whose_server_died_is_taken_when_its_claim_has_ended(
    node: Node, start_server: StartServer
) -> None:
    until = timezone.now() + timedelta(seconds=3)
    Node.objects.filter(pk=node.pk).update(served_by="dead", served_until=until)
    server = start_server()

    while timezone.now() < until:
        server.wake()
        assert served_by(node) == "dead" or timezone.now() >= until
    wait_until(lambda: served_by(node) == server.token, what="it serves")


def test_a_claim_from_a_clock_that_ran_ahead_holds_nobody_off(
    node: Node, start_server: StartServer
) -> None:
    until = timezone.now() + timedelta(hours=2)
    Node.objects.filter(pk=node.pk).update(served_by="dead", served_until=until)

    server = start_server()

    wait_until(lambda: served_by(node) == server.token, what="it serves")


def test_a_node_is_taken_at_once_from_a_process_of_this_machine_that_is_dead(
    node: Node, start_server: StartServer
) -> None:
    place, _, _, _ = process_token().split(".")
    gone = subprocess.Popen(["true"])
    gone.wait()
    until = timezone.now() + timedelta(minutes=5)
    Node.objects.filter(pk=node.pk).update(
        served_by=f"{place}.{gone.pid}.12345.abcdef", served_until=until
    )

    server = start_server()

    wait_until(lambda: served_by(node) == server.token, what="it serves")
    assert timezone.now() < until


def test_a_process_that_lives_is_not_dead() -> None:
    assert not is_dead(process_token())
    assert not is_dead("node add")
    assert not is_dead("another.1.2.abcdef")


def test_who_lost_its_node_stops_to_speak_with_it(
    example: Example, alice: User, node: Node, start_server: StartServer
) -> None:
    server = start_server()
    task = submit(alice, example.dev_queue, "echo once; sleep 60")
    wait_for(task, "running")

    # As if it had been stopped for long, and another process had taken over meanwhile.
    until = timezone.now() + timedelta(minutes=1)
    Node.objects.filter(pk=node.pk).update(served_by="another", served_until=until)

    wait_until(lambda: not server._loops, what="its loop is gone")
    assert served_by(node) == "another"
    assert state_of(task) == "running"


def test_a_database_that_fails_once_stops_nobody(
    example: Example,
    alice: User,
    node: Node,
    start_server: StartServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed: list[str] = []

    def fail_once(module: object, name: str) -> None:
        real = getattr(module, name)

        def wrapped(*args: object, **kwargs: object) -> object:
            if name not in failed:
                failed.append(name)
                raise OperationalError("the database went away")
            return real(*args, **kwargs)

        monkeypatch.setattr(module, name, wrapped)

    fail_once(server_loop, "report_apply")
    fail_once(server_module, "members_to_launch")
    server = start_server()
    task = submit(alice, example.dev_queue, "echo fine")
    server.wake()

    wait_for(task, "completed")

    assert sorted(failed) == ["members_to_launch", "report_apply"]
    assert log_of(task) == b"fine\n"


def test_a_node_that_shows_another_host_key_is_refused_and_sent_nothing(
    example: Example,
    alice: User,
    ssh_node: SshdNode,
    start_server: StartServer,
) -> None:
    node = node_add(
        name="far",
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
    ssh_node.stop()
    ssh_node.change_host_key()
    ssh_node.start()
    # Before anybody has seen the new key: a refused node is given nothing at all.
    task = submit(alice, example.dev_queue, "echo never")
    start_server().wake()

    wait_until(lambda: node_state(node) == NodeState.REFUSED, what="it is refused")

    assert state_of(task) == "allocated"
    assert not Path(ssh_node.home, "tasks", str(task.pk)).exists()


def test_a_node_with_a_forged_serial_stops_nobody_and_forgets_it(
    example: Example, alice: User, node: Node, start_server: StartServer
) -> None:
    server = start_server()
    kept = Path(node.state_dir) / "serial.json"
    wait_until(kept.exists, what="the node has heard a serial")
    with files.locked(str(kept.with_name("serial.lock"))):
        kept.write_text(json.dumps({"serial": 2**63 - 20, "signature": "f" * 64}))

    task = submit(alice, example.dev_queue, "exit 0")
    server.wake()

    wait_for(task, "completed")
    (event,) = Event.objects.filter(kind="node.serial_refused")
    assert event.data["serial"] == 2**63 - 20
    assert not database_trust().is_doubted
    wait_until(lambda: json.loads(kept.read_text())["serial"] < 10**9, what="it is replaced")


def served_by(node: Node) -> str:
    return str(Node.objects.values_list("served_by", flat=True).get(pk=node.pk))


def node_state(node: Node) -> str:
    return str(Node.objects.values_list("state", flat=True).get(pk=node.pk))
