"""What pools, policies and queues hold now, as REST says it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.configuration.services.policies import policy_change, policy_create
from tests.allocation.state import enqueue, make_node
from tests.people import Example

pytestmark = pytest.mark.django_db

Api = Callable[[User], APIClient]


@pytest.fixture
def busy(example: Example, alice: User) -> None:
    """Alice has a task of 4 GPUs that runs, and two that wait."""
    make_node(example.bare_metal, name="b1", gpus=4)
    enqueue(alice, example.dev_queue, 3)
    run_pass()


def current(client: APIClient, kind: str, pk: int) -> dict[str, Any]:
    rows = client.get(f"/api/v1/{kind}/").json()["results"]
    found: dict[str, Any] = next(one["current"] for one in rows if one["id"] == pk)
    return found


@pytest.mark.usefixtures("busy")
def test_a_queue_and_a_policy_say_what_runs_and_waits(
    api_as: Api, example: Example, alice: User
) -> None:
    client = api_as(alice)
    for kind, pk in (("queues", example.dev_queue.pk), ("policies", example.dev.pk)):
        found = current(client, kind, pk)

        assert found["used"]["gpu"] == "4", kind
        assert (found["running"], found["waiting"]) == (1, 2), kind
        assert found["oldest_wait_at"] is not None, kind


@pytest.mark.usefixtures("busy")
def test_a_pool_says_only_what_is_used(api_as: Api, example: Example, root: User) -> None:
    client = api_as(root)

    assert current(client, "pools", example.bare_metal.pk) == {"used": {"gpu": "4"}}
    assert current(client, "pools", example.h100.pk) == {"used": {}}


@pytest.mark.usefixtures("busy")
def test_a_policy_includes_those_below_it(api_as: Api, example: Example, root: User) -> None:
    top = policy_create(actor=root, name="Laboratory", group=example.dev.group)
    policy_change(actor=root, policy=example.dev, changes={"parent": top})

    found = current(api_as(root), "policies", top.pk)

    assert (found["used"]["gpu"], found["running"], found["waiting"]) == ("4", 1, 2)


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("kind", ["pools", "policies", "queues"])
def test_the_number_of_queries_does_not_grow(
    api_as: Api, example: Example, root: User, alice: User, kind: str
) -> None:
    client = api_as(root)
    client.get(f"/api/v1/{kind}/")
    with CaptureQueriesContext(connection) as few:
        client.get(f"/api/v1/{kind}/")
    for number in range(5):
        policy_create(actor=root, name=f"p{number}", group=example.dev.group)
    enqueue(alice, example.dev_queue, 3)

    with CaptureQueriesContext(connection) as many:
        client.get(f"/api/v1/{kind}/")

    assert len(many) == len(few)
