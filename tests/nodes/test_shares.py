"""What nodes and pools tell of shares of their devices."""

from collections.abc import Callable
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.nodes.models import Device, DeviceState, Node
from apps.nodes.selectors import ShareEnforcement, enforcement_by_pool
from tests.allocation.state import make_node
from tests.people import Example

pytestmark = pytest.mark.django_db

SignIn = Callable[[User], APIClient]
V1 = "/api/v1"
MIG = {"memory": "mig", "compute": "mig", "detail": ""}
MPS = {"memory": "mps", "compute": "mps", "detail": ""}
WHY = "nvidia-cuda-mps-control is not installed"
ACCOUNTED = {"memory": "accounted", "compute": "accounted", "detail": WHY}


def nodes(example: Example, *found: dict[str, Any] | None, **changes: Any) -> list[Node]:
    return [
        make_node(example.h100, name=f"n{n}", gpus=1, report={"enforcement": said}, **changes)
        for n, said in enumerate(found)
    ]


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param([MPS], ShareEnforcement("enforced", "enforced", ("mps",), ""), id="MPS"),
        pytest.param(
            [MPS, MIG],
            ShareEnforcement("enforced", "enforced", ("mig", "mps"), ""),
            id="slices and MPS",
        ),
        pytest.param(
            [MPS, ACCOUNTED, MPS],
            ShareEnforcement(
                "accounted", "accounted", ("accounted", "mps"), f"1 of 3 nodes: {WHY}"
            ),
            id="the weakest node counts",
        ),
        pytest.param(
            [None],
            ShareEnforcement(
                *("accounted", "accounted", ("accounted",)),
                "1 of 1 nodes: the node has not reported yet",
            ),
            id="a node that has not reported",
        ),
    ],
)
def test_a_pool_enforces_shares_if_every_node_does(
    example: Example, found: list[dict[str, Any] | None], want: ShareEnforcement
) -> None:
    nodes(example, *found)

    assert enforcement_by_pool() == {example.h100.pk: want}


def test_simulated_devices_hold_nobody_to_a_share(example: Example) -> None:
    nodes(example, None, is_simulated=True)

    assert (
        enforcement_by_pool()[example.h100.pk].detail == "1 of 1 nodes: the devices are simulated"
    )


def test_nodes_without_devices_say_nothing_of_shares(example: Example) -> None:
    (node,) = nodes(example, None)
    Device.objects.filter(node=node).update(state=DeviceState.MISSING)

    assert enforcement_by_pool() == {}


def test_pools_show_it_to_whoever_sees_them(
    example: Example,
    root: User,
    api_as: SignIn,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    nodes(example, MPS, ACCOUNTED)
    client = api_as(root)

    with django_assert_max_num_queries(12) as asked:
        rows = client.get(f"{V1}/pools/").json()["results"]

    shares = {row["name"]: row["shares"] for row in rows}
    assert shares.pop(example.h100.name) == {
        "memory": "accounted",
        "compute": "accounted",
        "methods": ["accounted", "mps"],
        "detail": f"1 of 2 nodes: {WHY}",
    }
    assert set(shares.values()) == {None}
    assert len([one for one in asked if "enforcement" in one["sql"]]) == 1


def test_a_node_shows_what_it_enforces_and_which_gpu_a_slice_is_of(
    example: Example, root: User, api_as: SignIn
) -> None:
    (node,) = nodes(example, MIG)
    Device.objects.filter(node=node).update(uuid="MIG-1", parent_uuid="GPU-1")
    bare = Node.objects.create(name="bare", pool=example.h100)
    client = api_as(root)

    shown = client.get(f"{V1}/nodes/{node.pk}/").json()

    assert shown["enforcement"] == MIG
    assert [one["parent_uuid"] for one in shown["devices"]] == ["GPU-1"]
    assert client.get(f"{V1}/nodes/{bare.pk}/").json()["enforcement"] is None
