"""What Validate says, sentence by sentence."""

from collections.abc import Callable
from typing import Any

import pytest

from apps.accounts.models import User
from apps.configuration.selectors import draft_document
from apps.configuration.services.policies import policy_change, policy_create
from apps.configuration.services.queues import profile_connect
from apps.configuration.services.validation import document_check
from apps.nodes.models import Node, NodeState
from apps.policies.document import as_data, parse
from apps.policies.models import Policy
from tests.people import Example

pytestmark = pytest.mark.django_db


def found(**changes: Any) -> dict[str, list[str]]:
    """Sentences per code, for the draft with some parts replaced."""
    document = parse(as_data(draft_document()) | changes)
    sentences: dict[str, list[str]] = {}
    for finding in document_check(document):
        sentences.setdefault(finding.code, []).append(finding.detail)
    return sentences


def serve(example: Example, gpus: str, *, state: str = NodeState.HEALTHY) -> None:
    number = Node.objects.count()
    Node.objects.create(name=f"n{number}", pool=example.h100, state=state, capacity={"gpu": gpus})


def test_a_pool_that_nobody_serves_is_reported(example: Example) -> None:
    serve(example, "8")

    assert found() == {
        "no_server": ["No node serves pool 'Bare Metal Low END GPUs': the pool admits nothing."]
    }


def test_entries_without_a_key_are_the_objects_of_their_names(example: Example) -> None:
    serve(example, "4")
    data = as_data(draft_document())
    without_keys = {
        kind: [{k: v for k, v in entry.items() if k != "key"} for entry in data[kind]]
        for kind in ("pools", "profiles")
    }

    assert found(**without_keys) == found()
    assert set(found()) == {"drift", "no_server"}


def test_an_entry_without_a_key_and_with_another_name_is_new(example: Example) -> None:
    pools = as_data(draft_document())["pools"]
    pools.append({"name": "Annex", "capacity": {"gpu": "1"}})
    serve(example, "8")

    assert (
        "No node serves pool 'Annex': the pool admits nothing." in found(pools=pools)["no_server"]
    )
    assert "removes_pool" not in found(pools=pools)


def test_an_entry_without_a_key_leaves_an_object_to_the_entry_with_its_key(
    example: Example,
) -> None:
    """As when a pool is renamed and a new one gets its name."""
    pools = as_data(draft_document())["pools"]
    serve(example, "8")
    serving = dict(pools[0], name="Renamed", profiles=[])
    new = {"name": pools[0]["name"], "capacity": {"gpu": "8"}}
    document = parse(as_data(draft_document()) | {"pools": [serving, new], "profiles": []})

    reported = [f.path for f in document_check(document) if f.code == "no_server"]

    assert reported == ["pools[1]"]


def test_part_of_a_gpu_is_no_capacity(example: Example) -> None:
    pools = as_data(draft_document())["pools"]
    pools[0]["capacity"] = {"gpu": "7.5"}

    assert found(pools=pools)["fractional_gpu"] == [
        "Pool 'H100 Half a Superpod' counts 7.5 GPU: count whole GPUs, profiles share them."
    ]


def test_drift_compares_with_the_healthy_nodes_only(example: Example) -> None:
    serve(example, "4")
    serve(example, "4", state=NodeState.SUSPECT)

    assert found()["drift"] == [
        "Pool 'H100 Half a Superpod' is set to 8 GPU; its healthy nodes have 4. The smaller counts."
    ]


def test_ranks_with_fair_shares_are_reported(example: Example) -> None:
    pools = as_data(draft_document())["pools"]
    pools[1]["preemption"] = "rank"

    ranks = found(settings={"over_quota": "fair_share", "preemption": "rank"}, pools=pools)

    words = "With fair shares, the level 'rank' preempts no more than 'priority' does."
    assert ranks["rank_with_fair_share"] == [words, words]
    assert "rank_with_fair_share" not in found(settings={"preemption": "rank"}, pools=pools)


def test_a_queue_whose_tasks_could_never_run_is_reported(root: User, example: Example) -> None:
    policy_change(actor=root, policy=example.dev, changes={"reserved": 2, "limit": 2})

    assert found()["above_limit"] == [
        (
            "Tasks of queue 'dev-4xgpu' could never run: '4xGPU' takes more GPU than the limit 2 "
            "of policy 'Dev'."
        )
    ]


def test_a_limit_of_an_ancestor_counts_too(root: User, example: Example) -> None:
    top = policy_create(actor=root, name="Top", group=example.dev.group, limit=2)
    policy_change(actor=root, policy=example.dev, changes={"parent": top})

    assert "policy 'Top'" in found()["above_limit"][0]


def test_a_volume_that_is_not_there_is_reported(example: Example) -> None:
    profiles = as_data(draft_document())["profiles"]
    profiles[0]["volumes"] = ["scratch"]

    assert found(profiles=profiles)["no_volume"] == [
        "Profile '4xGPU' names volume 'scratch', which is not there."
    ]


def reserve_together(root: User, example: Example) -> None:
    policy_change(actor=root, policy=example.dev, changes={"reserved": 9})


def reserve_below_a_parent(root: User, example: Example) -> None:
    """A parent without an own reservation has the sum of its children's."""
    top = policy_create(actor=root, name="Top", group=example.dev.group)
    policy_change(actor=root, policy=example.dev, changes={"parent": top, "reserved": 9})


def reserve_alone(root: User, example: Example) -> None:
    """A policy that shares the pools without a reservation has no part in it."""
    policy_change(actor=root, policy=example.research, changes={"reserved": {}})
    policy_change(actor=root, policy=example.dev, changes={"reserved": 17, "limit": {}})


def reserve_in_unconnected_pools(root: User, example: Example) -> None:
    """A policy that reaches no pool of the others does not count with them."""
    policy_create(actor=root, name="Elsewhere", group=example.dev.group, reserved=100)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        (
            reserve_together,
            [
                (
                    "'Dev' (9), 'Research' (8) reserve 17 GPU together; "
                    "the pools that they reach have 16."
                )
            ],
        ),
        (
            reserve_below_a_parent,
            [
                (
                    "'Research' (8), 'Top' (9) reserve 17 GPU together; "
                    "the pools that they reach have 16."
                )
            ],
        ),
        (
            reserve_alone,
            ["'Dev' reserves 17 GPU; the pools that it reaches have 16."],
        ),
        (reserve_in_unconnected_pools, []),
    ],
)
def test_reservations_are_compared_with_what_can_be_reached(
    root: User, example: Example, change: Callable[[User, Example], None], want: list[str]
) -> None:
    change(root, example)

    assert found().get("reserved_beyond_capacity", []) == want


def test_a_gang_larger_than_every_pool_is_an_error(example: Example) -> None:
    profiles = as_data(draft_document())["profiles"]
    profiles[0]["replicas"] = 3

    assert found(profiles=profiles)["never_fits"] == [
        (
            "Profile '4xGPU' takes 12 GPU, more than any pool it links: 'Bare Metal Low END GPUs' "
            "has 8 GPU; 'H100 Half a Superpod' has 8 GPU."
        )
    ]


def test_keys_that_a_pool_does_not_count_do_not_stand_in_the_way(example: Example) -> None:
    profiles = as_data(draft_document())["profiles"]
    profiles[0]["request"] = {"gpu": 1, "cpu": 1000, "memory_mb": 10**9}

    assert "never_fits" not in found(profiles=profiles)


def test_a_pool_may_be_dedicated_to_a_parent(root: User, example: Example) -> None:
    top = policy_create(actor=root, name="Top", group=example.dev.group)
    for policy in Policy.objects.exclude(pk=top.pk):
        policy_change(actor=root, policy=policy, changes={"parent": top})
    pools = as_data(draft_document())["pools"]
    pools[0]["dedicated_to"] = "Top"

    assert "not_dedicated" not in found(pools=pools)


def test_checking_takes_as_many_queries_however_much_there_is(
    root: User, example: Example, django_assert_num_queries: Any
) -> None:
    for number in range(3):
        policy = policy_create(actor=root, name=f"p{number}", group=example.dev.group)
        profile_connect(actor=root, policy=policy, profile=example.profile)
        serve(example, "8")
    document = draft_document()

    with django_assert_num_queries(7):
        document_check(document)
