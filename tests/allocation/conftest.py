"""A node full of work, part of which can be preempted."""

import pytest

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.nodes.models import Node
from apps.policies.models import PolicyAmount
from apps.tasks.models import Task
from tests.allocation.state import begin, enqueue, latest, make_node
from tests.people import Example


@pytest.fixture
def node(example: Example) -> Node:
    return make_node(example.bare_metal, name="b1")


@pytest.fixture
def full(node: Node, example: Example, alice: User) -> list[Task]:
    """Dev runs two tasks of 4 GPUs, one of them over quota; Research may claim 4."""
    PolicyAmount.objects.update(reserved_milli=4000)
    tasks = enqueue(alice, example.dev_queue, 2)
    run_pass()
    # The second one began last: it would lose least.
    begin(*map(latest, tasks))
    return tasks
