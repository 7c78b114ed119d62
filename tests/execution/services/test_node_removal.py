"""Removing a node: by itself, with work on it, and while a pass gives it some."""

import pytest

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.core.errors import BadInput, Conflict
from apps.events.models import AuditEntry, Event
from apps.execution.node_server.loop import NodeLoop
from apps.execution.node_server.periodic_checks import PeriodicChecks
from apps.execution.services.node_removal import node_remove
from apps.nodes.models import Node, NodeState
from apps.nodes.services import node_resume
from apps.tasks.models import Attempt, Member, Task
from tests.allocation.state import begin, end, enqueue, make_node
from tests.people import Example

pytestmark = pytest.mark.django_db


@pytest.fixture
def busy(example: Example, alice: User) -> Node:
    """A node that runs a task."""
    node = make_node(example.bare_metal, name="b1", served_by="t")
    enqueue(alice, example.dev_queue)
    run_pass()
    begin(Attempt.objects.get())
    return node


def run_checks(node: Node) -> None:
    loop = NodeLoop(node, token="t", installation="ours", tick_s=1)
    PeriodicChecks("t").run_checks({node.pk: loop})


def state_of_task() -> str:
    return str(Task.objects.get().state)


def test_an_empty_node_is_removed_its_name_is_free_and_its_history_stays(
    busy: Node, example: Example, root: User
) -> None:
    end(Attempt.objects.get(), code=0)

    node_remove(actor=root, node=busy)
    again = make_node(example.bare_metal, name="b1")

    busy.refresh_from_db()
    assert (busy.is_removed, busy.served_by) == (True, "")
    assert again.pk != busy.pk
    member = Member.objects.get()
    # It will never hear of the result: whatever keeps history need not wait for that.
    assert (member.node, member.is_acknowledged) == (busy, True)
    assert Event.objects.get(kind="node.removed").actor == root


def test_a_node_with_work_is_not_removed_and_the_work_is_named(busy: Node, root: User) -> None:
    with pytest.raises(Conflict, match=Task.objects.get().name):
        node_remove(actor=root, node=busy)

    busy.refresh_from_db()
    assert not busy.is_removed


def test_a_forced_removal_stops_the_work_first_and_it_waits_again(busy: Node, root: User) -> None:
    node_remove(actor=root, node=busy, is_forced=True)
    run_checks(busy)
    busy.refresh_from_db()
    assert (state_of_task(), busy.is_removed, busy.is_draining) == ("stopping", False, True)

    end(Attempt.objects.get())
    run_checks(busy)

    busy.refresh_from_db()
    assert (state_of_task(), busy.is_removed) == ("queued", True)
    stops = Event.objects.get(kind="node.removal_asked").data["stops"]
    assert stops == [str(Task.objects.get().pk)]
    entries = AuditEntry.objects.filter(object_type="node", object_id=str(busy.pk))
    assert ("node.removed", "root") in entries.values_list("verb", "actor")


def test_the_end_of_a_removal_that_nobody_signed_in_asked_for_is_audited(busy: Node) -> None:
    node_remove(actor=None, node=busy, is_forced=True)
    run_checks(busy)
    end(Attempt.objects.get())
    run_checks(busy)

    assert AuditEntry.objects.filter(verb="node.removed", object_id=str(busy.pk)).count() == 1


def test_what_a_removal_tells_the_owner_does_not_name_the_node(busy: Node, root: User) -> None:
    node_remove(actor=root, node=busy, is_forced=True)
    run_checks(busy)
    end(Attempt.objects.get())

    events = Event.objects.filter(object_type="task").values_list("data", flat=True)
    texts = [Task.objects.get().state_detail, Attempt.objects.get().detail, *map(str, events)]
    assert any("Its node is being removed." in one for one in texts)
    assert not any("b1" in one for one in texts)


def test_a_forced_removal_stops_only_what_was_shown(busy: Node, root: User) -> None:
    with pytest.raises(Conflict, match="Nothing was stopped: 1 more task has started"):
        node_remove(actor=root, node=busy, is_forced=True, shown=())
    busy.refresh_from_db()
    assert (state_of_task(), busy.removal_asked_at) == ("running", None)

    node_remove(actor=root, node=busy, is_forced=True, shown=[Task.objects.get().pk])

    busy.refresh_from_db()
    assert busy.removal_asked_at is not None


def test_a_task_that_may_not_start_again_ends(busy: Node, root: User) -> None:
    Task.objects.update(is_restartable=False)

    node_remove(actor=root, node=busy, is_forced=True)
    run_checks(busy)
    end(Attempt.objects.get())

    assert state_of_task() == "aborted"


def test_a_silent_node_is_removed_once_somebody_says_that_it_is_off(busy: Node, root: User) -> None:
    Node.objects.update(state=NodeState.SUSPECT)
    run_checks(busy)
    busy.refresh_from_db()

    with pytest.raises(BadInput, match="the machine is off"):
        node_remove(actor=root, node=busy, is_forced=True)
    node_remove(actor=root, node=busy, is_forced=True, reason="the plug is out")
    run_checks(busy)

    busy.refresh_from_db()
    # Lost with its node, and waiting again; the node goes at the next look.
    assert (Attempt.objects.get(generation=1).state, state_of_task()) == ("lost", "queued")
    run_checks(busy)
    busy.refresh_from_db()
    assert busy.is_removed


def test_a_reason_is_not_lost_on_a_node_that_still_counts_as_healthy(
    busy: Node, root: User
) -> None:
    with pytest.raises(BadInput, match="wait until the node is suspect"):
        node_remove(actor=root, node=busy, is_forced=True, reason="the plug is out")
    run_checks(busy)
    busy.refresh_from_db()
    assert (state_of_task(), busy.removal_asked_at, busy.off_at) == ("running", None, None)
    Node.objects.update(state=NodeState.SUSPECT)
    busy.refresh_from_db()

    node_remove(actor=root, node=busy, is_forced=True, reason="the plug is out")

    busy.refresh_from_db()
    assert busy.off_at is not None
    assert Event.objects.get(kind="node.declared_off").data["reason"] == "the plug is out"


def test_a_removal_that_was_asked_for_is_called_off(busy: Node, root: User) -> None:
    node_remove(actor=root, node=busy, is_forced=True)

    node_resume(actor=root, node=busy)
    run_checks(busy)

    busy.refresh_from_db()
    assert (busy.is_removed, state_of_task()) == (False, "running")


def test_what_a_pass_gives_a_node_that_is_being_removed_goes_elsewhere(
    example: Example, alice: User, root: User
) -> None:
    node = make_node(example.bare_metal, name="b1", served_by="t")
    node_remove(actor=root, node=node)
    # As for a pass that had loaded the node before.
    Node.objects.update(removed_at=None, state=NodeState.HEALTHY)
    enqueue(alice, example.dev_queue)
    run_pass()
    Node.objects.update(removed_at="2026-01-01T00:00Z", state=NodeState.REFUSED)
    assert state_of_task() == "allocated"

    run_checks(node)

    assert state_of_task() == "queued"
