"""Letting nodes forget tasks that are long over."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.execution.client import NodeClient
from apps.execution.node_server import fence_cleanup
from apps.execution.node_server.fence_cleanup import FenceCleanup
from apps.execution.services.node_ownership import NotServing
from apps.execution.transport.base import Unreachable
from apps.nodes.models import Node
from apps.tasks.models import Attempt, Member
from tests.allocation.state import begin, end, enqueue, make_node
from tests.execution.services.scripted_node import ScriptedNode, done
from tests.people import Example

pytestmark = pytest.mark.django_db


@pytest.fixture
def node(example: Example, alice: User) -> Node:
    """Two tasks have ended there: one long ago, one just now."""
    node = make_node(example.bare_metal, name="b1", served_by="t")
    enqueue(alice, example.dev_queue, 2)
    run_pass()
    for attempt in Attempt.objects.all():
        begin(attempt)
        end(attempt, code=0, is_stop_asked=False)
    Member.objects.update(is_acknowledged=True)
    old = Attempt.objects.order_by("pk")[0]
    Attempt.objects.filter(pk=old.pk).update(ended_at=timezone.now() - timedelta(days=2))
    return node


@pytest.fixture
def scripted() -> ScriptedNode:
    return ScriptedNode()


def forget(kept: FenceCleanup, node: Node, scripted: ScriptedNode) -> None:
    kept.forget(node, NodeClient(scripted, "ours"), "t")


def test_only_what_has_been_over_for_a_day_is_forgotten_and_only_once(
    node: Node, scripted: ScriptedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence_cleanup, "EVERY_S", 0)
    old, new = Attempt.objects.order_by("pk")
    scripted.answers = [done(forgotten=[str(old.task_id)])]
    kept = FenceCleanup()

    forget(kept, node, scripted)
    forget(kept, node, scripted)

    (asked,) = scripted.requests
    assert asked["verb"] == "forget"
    assert asked["tasks"] == [{"task_id": str(old.task_id), "generation": 1}]
    assert [attempt.members.get().is_forgotten for attempt in (old, new)] == [True, False]


def test_it_is_asked_from_time_to_time_only(node: Node, scripted: ScriptedNode) -> None:
    Attempt.objects.update(ended_at=timezone.now())
    kept = FenceCleanup()
    forget(kept, node, scripted)
    Attempt.objects.update(ended_at=timezone.now() - timedelta(days=2))

    forget(kept, node, scripted)

    assert scripted.requests == []


def test_what_the_node_has_not_acknowledged_or_answered_stays(
    node: Node, scripted: ScriptedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence_cleanup, "EVERY_S", 0)
    kept = FenceCleanup()
    Member.objects.update(is_acknowledged=False)
    forget(kept, node, scripted)
    assert scripted.requests == []

    Member.objects.update(is_acknowledged=True)
    scripted.answers = [Unreachable("no route"), done(forgotten=[])]
    forget(kept, node, scripted)
    assert not Member.objects.filter(is_forgotten=True).exists()
    forget(kept, node, scripted)

    assert scripted.verbs() == ["forget", "forget"]
    assert Member.objects.filter(is_forgotten=True).count() == 1


def test_who_does_not_serve_the_node_any_more_notes_nothing(
    node: Node, scripted: ScriptedNode
) -> None:
    Node.objects.update(served_by="another")
    scripted.answers = [done(forgotten=[])]

    with pytest.raises(NotServing):
        forget(FenceCleanup(), node, scripted)

    assert not Member.objects.filter(is_forgotten=True).exists()
