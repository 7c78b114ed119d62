"""What is configured for a pool compared with what its nodes have."""

from collections.abc import Callable

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.events.models import Event
from apps.nodes.capacity import NodeCapacity, pool_capacity
from apps.nodes.models import Device, DeviceState, Node, NodeState, PoolDrift
from apps.nodes.selectors import capacity_by_pool
from apps.nodes.services import drift_note
from tests.allocation.state import make_node
from tests.people import Example

SignIn = Callable[[User], APIClient]
EIGHT = {"gpu": 8000}


def node(gpus: int = 8, **changes: object) -> NodeCapacity:
    facts: dict[str, object] = {
        "is_healthy": True,
        "amounts": {"gpu": gpus * 1000, "cpu": 64_000},
        "devices": gpus,
    }
    return NodeCapacity(**(facts | changes))  # type: ignore[arg-type]  # as the fields say


@pytest.mark.parametrize(
    ("configured", "nodes", "want_found", "want_usable", "want_sentences"),
    [
        pytest.param(EIGHT, [node()], 8000, 8000, [], id="as configured"),
        pytest.param(EIGHT, [], 0, 0, [], id="no node serves it: that is shown elsewhere"),
        pytest.param(
            *(EIGHT, [node(4), node(4, is_healthy=False)], 4000, 4000),
            ["Configured 8 GPU, healthy nodes have 4. 1 node does not answer."],
            id="a silent node",
        ),
        pytest.param(
            *(EIGHT, [node(6, missing=2)], 6000, 6000),
            ["Configured 8 GPU, healthy nodes have 6. 2 GPUs are missing."],
            id="devices that are gone, counted once",
        ),
        pytest.param(
            *(EIGHT, [node(amounts={"gpu": 8000}, devices=5, occupied=3)], 8000, 5000),
            [],
            id="occupied devices are there, and not given out",
        ),
        pytest.param(
            *({"gpu": 6000}, [node()], 8000, 6000),
            ["Configured 6 GPU, healthy nodes have 8. 2 are not given out."],
            id="more than configured",
        ),
        pytest.param(
            *(EIGHT, [node(amounts={"gpu": 4000})], 4000, 4000),
            ["Configured 8 GPU, healthy nodes have 4."],
            id="an administrator gives out less of the node",
        ),
        pytest.param(
            *({"gpu": 8000, "cpu": 32_000}, [node()], 8000, 8000),
            [],
            id="more processors than configured are left to the machine",
        ),
        pytest.param(
            *({"gpu": 8000, "cpu": 96_000, "license": 3000}, [node()], 8000, 8000),
            ["Configured 96 CPU, healthy nodes have 64."],
            id="fewer processors, and a key that no machine reports",
        ),
        pytest.param(
            *({"gpu": 16_000}, [node(models={"H100": 8}), node(models={"A100": 2, "H100": 6})]),
            *(16_000, 16_000, ["Its GPUs are of 2 models: 14 H100, 2 A100."]),
            id="models that differ",
        ),
    ],
)
def test_what_nodes_have_is_compared_with_what_is_configured(
    configured: dict[str, int],
    nodes: list[NodeCapacity],
    want_found: int,
    want_usable: int,
    want_sentences: list[str],
) -> None:
    found = pool_capacity(configured, nodes)

    assert (found.found["gpu"], found.usable_gpu) == (want_found, want_usable)
    assert [one.sentence for one in found.differences] == want_sentences


@pytest.mark.django_db
def test_devices_that_were_replaced_are_not_missed(
    example: Example, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    one = make_node(example.h100, name="h1")
    Device.objects.filter(node=one, index=7).update(index=1_000_007, state=DeviceState.MISSING)
    Device.objects.create(node=one, index=7, uuid="GPU-new", model="H100")
    Device.objects.filter(node=one, index=0).update(state=DeviceState.OCCUPIED)

    with django_assert_num_queries(2):
        found = capacity_by_pool([example.h100, example.bare_metal])

    here = found[example.h100.pk]
    assert (here.missing, here.occupied, here.found["gpu"], here.usable_gpu) == (0, 1, 8000, 7000)
    assert (here.models, here.differences) == ((("H100", 1),), ())
    assert found[example.bare_metal.pk].nodes == 0


@pytest.mark.django_db
def test_drift_is_recorded_when_it_begins_and_when_it_ends_and_not_between(
    example: Example,
) -> None:
    one = make_node(example.h100, name="h1")
    make_node(example.bare_metal, name="b1")
    drift_note()
    assert not Event.objects.filter(kind__startswith="pool.drift").exists()

    Node.objects.filter(pk=one.pk).update(state=NodeState.SUSPECT)
    for _again in range(3):
        drift_note()
    since = PoolDrift.objects.get().since
    Node.objects.filter(pk=one.pk).update(state=NodeState.HEALTHY)
    for _again in range(3):
        drift_note()

    events = Event.objects.filter(kind__startswith="pool.drift").order_by("id")
    assert [(event.kind, event.object_id) for event in events] == [
        ("pool.drift", str(example.h100.pk)),
        ("pool.drift_over", str(example.h100.pk)),
    ]
    assert events[0].data == {
        "name": example.h100.name,
        "detail": "Configured 8 GPU, healthy nodes have 0. 1 node does not answer.",
    }
    assert events[0].at >= since
    assert not PoolDrift.objects.exists()


@pytest.mark.django_db
def test_rest_tells_it_of_every_pool_at_once(
    example: Example,
    root: User,
    alice: User,
    api_as: SignIn,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    make_node(example.h100, name="h1", gpus=6, gpu_model="H100")
    drift_note()
    client = api_as(root)

    with django_assert_max_num_queries(15):
        rows = client.get("/api/v1/pools/").json()["results"]

    found = {row["name"]: row["served"] for row in rows}
    since = found[example.h100.name].pop("since")
    assert since is not None
    assert found[example.h100.name] == {
        "nodes": 1,
        "healthy": 1,
        "found": {"gpu": "6"},
        "missing": 0,
        "occupied": 0,
        "models": {},
        "drift": [
            {
                "code": "less",
                "key": "gpu",
                "configured": "8",
                "found": "6",
                "sentence": "Configured 8 GPU, healthy nodes have 6.",
            }
        ],
    }
    assert (found[example.bare_metal.name]["nodes"], found[example.bare_metal.name]["drift"]) == (
        0,
        [],
    )
    one = client.get(f"/api/v1/pools/{example.h100.pk}/").json()
    assert one["served"]["drift"] == found[example.h100.name]["drift"]
    assert api_as(alice).get("/api/v1/pools/").json()["results"] == []


@pytest.mark.django_db
def test_the_administration_shows_it_in_list_and_form(
    example: Example, root: User, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    make_node(
        *(example.h100,),
        name="h1",
        gpus=6,
        report={"enforcement": {"memory": "mps", "compute": "mps", "detail": ""}},
    )
    why = "nvidia-cuda-mps-control is not installed"
    said = {"memory": "accounted", "compute": "accounted", "detail": why}
    make_node(example.bare_metal, name="b1", report={"enforcement": said})
    client = Client()
    client.force_login(root)

    with django_assert_max_num_queries(20) as asked:
        page = client.get("/admin/policies/pool/").content.decode()
    of_devices = [one for one in asked if "nodes_device" in one["sql"]]
    form = client.get(f"/admin/policies/pool/{example.h100.pk}/change/").content.decode()

    for shown in (page, form):
        assert "6 GPU. Configured 8 GPU, healthy nodes have 6." in shown
        assert "enforced (mps)" in shown
    assert "accounted" in page
    assert why not in page
    other = client.get(f"/admin/policies/pool/{example.bare_metal.pk}/change/").content.decode()
    assert f"1 of 1 nodes: {why}" in other
    # Counting devices, and which nodes have any: once for the page, however many pools.
    assert len(of_devices) == 2
