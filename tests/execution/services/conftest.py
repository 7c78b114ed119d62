"""What launches begin with."""

import pytest

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.nodes.models import Runtime
from apps.tasks.models import Attempt
from tests.allocation.state import enqueue, make_node
from tests.execution.services.scripted_node import ScriptedNode
from tests.people import Example


@pytest.fixture
def node() -> ScriptedNode:
    return ScriptedNode()


@pytest.fixture
def attempt(example: Example, alice: User) -> Attempt:
    make_node(example.bare_metal, name="b1", runtime=Runtime.PODMAN, served_by="t")
    enqueue(alice, example.dev_queue, image="registry/train:1")
    run_pass()
    return Attempt.objects.get()


@pytest.fixture
def process(attempt: Attempt) -> Attempt:
    """On a node without images."""
    member = attempt.members.select_related("node").get()
    assert member.node is not None
    type(member.node).objects.update(runtime=Runtime.PROCESS, allows_process=True)
    return attempt
