"""What is due at a look: here, work on machines that an administrator says are off."""

import pytest

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.events.models import Event
from apps.execution.node_server.loop import NodeLoop
from apps.execution.node_server.periodic_checks import PeriodicChecks
from apps.nodes.models import Node, NodeState
from apps.nodes.services import node_declare_off
from apps.policies.models import Queue
from apps.tasks.models import Attempt, HeldDevice, Task
from tests.allocation.state import begin, enqueue, make_node
from tests.people import Example

pytestmark = pytest.mark.django_db


@pytest.fixture
def silent(example: Example, alice: User) -> Node:
    """A node that ran a task when it fell silent."""
    node = make_node(example.bare_metal, name="b1", served_by="t")
    enqueue(alice, example.dev_queue)
    run_pass()
    begin(Attempt.objects.get())
    Node.objects.update(state=NodeState.SUSPECT)
    node.refresh_from_db()
    return node


def run_checks(node: Node, token: str = "t") -> None:
    loop = NodeLoop(node, token=token, installation="ours", tick_s=1)
    PeriodicChecks(token).run_checks({node.pk: loop})


def seen() -> tuple[str, str, str]:
    """The first attempt, the task, and its words."""
    task = Task.objects.get()
    return str(Attempt.objects.get(generation=1).state), str(task.state), task.state_detail


def held() -> int:
    return HeldDevice.objects.filter(released_at__isnull=True).count()


def test_what_ran_on_a_machine_that_is_off_is_lost_and_waits_again(
    silent: Node, root: User
) -> None:
    run_checks(silent)
    # Without its name, which could name a pool that the owner does not see.
    words = "Its node is silent: it may still be running there."
    assert (seen(), held()) == (("suspect", "running", words), 4)

    node_declare_off(actor=root, node=silent, reason="pulled the plug")
    run_checks(silent)

    words = "node_loss: the node was declared switched off."
    assert (seen(), held()) == (("lost", "queued", words), 0)
    assert Event.objects.filter(kind="task.queued", data__cause="node_loss").count() == 1
    # Once: a second look finds nothing.
    run_checks(silent)
    assert seen()[1] == "queued"


def test_a_queue_that_says_fail_does_not_run_it_again(silent: Node, root: User) -> None:
    Queue.objects.update(on_node_loss="fail")

    node_declare_off(actor=root, node=silent, reason="pulled the plug")
    run_checks(silent)

    assert (seen()[:2], held()) == (("lost", "failed"), 0)


def test_who_does_not_serve_the_node_gives_nothing_up(silent: Node, root: User) -> None:
    node_declare_off(actor=root, node=silent, reason="pulled the plug")
    Node.objects.update(served_by="another")

    run_checks(silent)

    assert (seen()[0], held()) == ("suspect", 4)


def test_a_node_that_answered_meanwhile_keeps_its_work(silent: Node, root: User) -> None:
    node_declare_off(actor=root, node=silent, reason="pulled the plug")
    Node.objects.update(off_at=None, state=NodeState.HEALTHY)

    run_checks(silent)

    assert (seen()[0], held()) == ("running", 4)
