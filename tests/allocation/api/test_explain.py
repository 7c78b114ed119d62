"""Why a task waits, in sentences, to each of the cast only with the names that they may read."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from guardian.shortcuts import assign_perm
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.allocation.engine.model.reasons import ReasonCode
from apps.allocation.services import run_pass
from apps.nodes.models import Node
from apps.nodes.services import node_pause
from apps.policies.models import Policy
from apps.tasks.lifecycle.states import AttemptState, TaskState
from apps.tasks.models import Attempt, ReasonChange, Task, TaskGroup
from apps.tasks.services.stop import task_dequeue
from tests.allocation.state import enqueue, make_node
from tests.page_words import words_on
from tests.people import Example

As = Callable[[User], APIClient]
pytestmark = pytest.mark.django_db


def explained(api_as: As, user: User, task: Task) -> dict[str, Any]:
    answer = api_as(user).get(f"/api/v1/tasks/{task.pk}/explain/")
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def store(task: Task, *reasons: dict[str, Any], head: Task | None = None) -> None:
    """Let the last pass have said this about the group of `task`."""
    assert task.task_group is not None
    TaskGroup.objects.filter(pk=task.task_group.pk).update(
        head_id=(head or task).pk,
        reason_code=reasons[0]["code"],
        reason={"reasons": list(reasons)},
        reason_at=timezone.now(),
    )


@pytest.fixture
def held(example: Example, alice: User, charlie: User) -> tuple[Task, Task]:
    """A task of Alice's whose reason names everything of both teams, and Charlie's."""
    (own,), (foreign,) = enqueue(alice, example.dev_queue), enqueue(charlie, example.research_queue)
    detail = {
        "pool": example.h100.pk,
        "policy": example.research.pk,
        "policies": [example.dev.pk, example.research.pk],
        "queue": example.dev_queue.pk,
        "user": charlie.pk,
        "tasks": [str(own.pk), str(foreign.pk)],
        "key": "gpu",
        "needed": 4000,
        "free": 5000,
        "limit": 4000,
    }
    store(own, {"code": "held", "details": [detail]})
    return own, foreign


def test_ids_and_names_of_other_teams_never_show_up(
    api_as: As, alice: User, example: Example, held: tuple[Task, Task]
) -> None:
    own, foreign = held

    answer = explained(api_as, alice, own)

    assert answer["reasons"][0]["details"] == [
        {
            "pool": None,
            "rank": 2,
            "policy": None,
            "policies": [example.dev.pk],
            "queue": example.dev_queue.pk,
            "user": None,
            "tasks": [str(own.pk)],
            "task_count": 2,
            "key": "gpu",
            "needed": "4",
            "free": "5",
            "limit": "4",
            "names": {
                "pool": "your second pool",
                "policy": "another team",
                "policies": ["Dev", "another team"],
                "queue": example.dev_queue.name,
                "tasks": [own.name],
            },
        }
    ]
    assert answer["sentence"].startswith("Your second pool")
    assert "another team" in answer["sentence"]
    hidden = ("Research", example.research_queue.name, "H100", str(foreign.pk), foreign.name)
    assert words_on(str(answer), *hidden) == []


@pytest.mark.parametrize(
    ("code", "field"),
    [
        *((code, "") for code in ReasonCode if code not in {ReasonCode.PAUSED, ReasonCode.BEHIND}),
        *((ReasonCode.PAUSED, field) for field in ("queue", "policy", "pool")),
        (ReasonCode.BEHIND, "policy"),
    ],
)
def test_no_reason_of_any_kind_tells_of_others(
    api_as: As,
    alice: User,
    bob: User,
    charlie: User,
    example: Example,
    code: ReasonCode,
    field: str,
) -> None:
    """Each code with everything foreign in its details; a few sentences ask for one field only."""
    (own,), (foreign,) = enqueue(alice, example.dev_queue), enqueue(charlie, example.research_queue)
    named = {
        "pool": example.h100.pk,
        "policy": example.research.pk,
        "queue": example.research_queue.pk,
    }
    only = {field: named[field]} if field else named
    numbers = {"needed": 4000, "free": 1000, "usage": 3000, "limit": 4000, "count": 2}
    detail = {
        **only,
        **numbers,
        "policies": [example.research.pk],
        "tasks": [str(foreign.pk)],
        "user": charlie.pk,
        "key": "gpu",
        "until_us": 1_800_000_000_000_000,
    }
    store(own, {"code": code.value, "details": [detail]})
    ReasonChange.objects.create(
        task=own,
        at=timezone.now(),
        code=code.value,
        data={"reasons": [{"code": code.value, "details": [detail]}]},
    )
    hidden = (
        "Research",
        example.research_queue.name,
        example.h100.name,
        str(foreign.pk),
        foreign.name,
        charlie.username,
    )

    for reader in (alice, bob):
        answer = explained(api_as, reader, own)
        page = api_as(reader).get(f"/tasks/{own.pk}/").content.decode()

        assert answer["reasons"][0]["sentence"]
        assert answer["history"][0]["sentence"]
        assert words_on(str(answer), *hidden) == []
        assert words_on(page, *hidden) == []
        for one in answer["reasons"][0]["details"]:
            assert not {one.get(name) for name in ("pool", "policy", "user")} - {None}
            assert one["policies"] == one["tasks"] == []


@pytest.mark.parametrize("who", ["bob", "root"])
def test_others_read_it_too_as_far_as_they_see(
    api_as: As, request: pytest.FixtureRequest, held: tuple[Task, Task], who: str
) -> None:
    own, foreign = held

    answer = explained(api_as, request.getfixturevalue(who), own)

    sees_all = who == "root"
    assert ("Research" in answer["sentence"]) == sees_all
    assert ("H100 Half a Superpod" in answer["sentence"]) == sees_all
    assert (str(foreign.pk) in str(answer)) == sees_all
    assert answer["help"]


@pytest.mark.parametrize(
    ("who", "want"),
    [
        pytest.param("alice", "You use 4 GPUs", id="the owner"),
        pytest.param("bob", "Its owner uses 4 GPUs", id="somebody of the group"),
        pytest.param("root", "Its owner uses 4 GPUs", id="an administrator"),
    ],
)
def test_a_limit_per_user_speaks_to_the_owner_and_of_the_owner(
    api_as: As, request: pytest.FixtureRequest, alice: User, example: Example, who: str, want: str
) -> None:
    (task,) = enqueue(alice, example.dev_queue)
    detail = {
        "policy": example.dev.pk,
        "user": alice.pk,
        "key": "gpu",
        "usage": 4000,
        "limit": 4000,
        "needed": 4000,
    }
    store(task, {"code": "limit", "details": [detail]})

    answer = explained(api_as, request.getfixturevalue(who), task)

    assert answer["sentence"].startswith(want)
    assert answer["reasons"][0]["details"][0]["user"] == (alice.pk if who == "alice" else None)


def test_a_other_tenant_gets_no_word(api_as: As, charlie: User, held: tuple[Task, Task]) -> None:
    own, _ = held

    assert api_as(charlie).get(f"/api/v1/tasks/{own.pk}/explain/").status_code == 404
    assert APIClient().get(f"/api/v1/tasks/{own.pk}/explain/").status_code in {401, 403}


def test_whoever_was_let_see_a_policy_reads_its_name(
    api_as: As, alice: User, example: Example, held: tuple[Task, Task]
) -> None:
    assign_perm("view_policy", alice, Policy.objects.get(pk=example.research.pk))

    assert "Research" in explained(api_as, alice, held[0])["sentence"]


def test_a_pass_explains_every_task_with_its_own_place(
    api_as: As, alice: User, example: Example
) -> None:
    make_node(example.bare_metal, name="b1", gpus=8)
    tasks = enqueue(alice, example.dev_queue, 5)
    # The second decides about those behind the heads that went.
    run_pass()
    run_pass()

    third, fifth = (explained(api_as, alice, task) for task in (tasks[2], tasks[4]))

    assert (third["state"], third["code"], third["position"]) == ("queued", "capacity", 1)
    assert "There is not enough free capacity" in third["sentence"]
    # What the pass said of the first holds for its equals, each in its own place.
    assert [one["code"] for one in fifth["reasons"]][:2] == ["capacity", "behind"]
    assert fifth["reasons"][1]["details"][0]["position"] == fifth["position"] == 3
    assert f"It is number 3 in {example.dev_queue.name}." in fifth["reasons"][1]["sentence"]


def test_a_place_is_counted_when_somebody_looks(api_as: As, alice: User, example: Example) -> None:
    first, second = enqueue(alice, example.dev_queue, 2)
    behind = {"code": "behind", "details": [{"queue": example.dev_queue.pk, "position": 7}]}
    store(second, behind)
    assert explained(api_as, alice, second)["reasons"][0]["details"][0]["position"] == 2

    Task.objects.filter(pk=first.pk).update(state=TaskState.ABORTED)

    assert explained(api_as, alice, second)["reasons"][0]["details"][0]["position"] == 1


def test_the_history_says_when_the_reason_changed(
    api_as: As, alice: User, example: Example
) -> None:
    (task,) = enqueue(alice, example.dev_queue)
    run_pass()
    node = make_node(example.bare_metal, name="b1", gpus=2)
    run_pass()

    history = explained(api_as, alice, task)["history"]

    assert [one["code"] for one in history] == ["capacity", "no_server"]
    assert history[0]["at"] > history[1]["at"]
    assert all(one["sentence"].endswith(".") and one["help"] for one in history)
    assert words_on(str(history), node.name) == []
    # Pools keep the order of the queue that it waited in.
    task_dequeue(actor=alice, task=task)
    assert explained(api_as, alice, task)["history"] == history


def test_the_history_masks_what_was_said_before(
    api_as: As, alice: User, example: Example, held: tuple[Task, Task]
) -> None:
    own, _ = held
    data = {"reasons": [{"code": "limit", "details": [{"policy": example.research.pk}]}]}
    ReasonChange.objects.create(task=own, at=timezone.now(), code="limit", data=data)

    (past,) = explained(api_as, alice, own)["history"]

    assert (past["code"], past["details"][0]["policy"]) == ("limit", None)
    assert past["sentence"].startswith("Another team")
    assert "Research" not in str(past)


def test_a_task_that_was_never_first_reads_what_the_first_of_its_kind_waited_for(
    api_as: As, alice: User, example: Example
) -> None:
    first, second = enqueue(alice, example.dev_queue, 2)
    ReasonChange.objects.create(
        task=first,
        at=timezone.now() - timedelta(days=1),
        code="no_pool",
        data={"reasons": [{"code": "no_pool"}]},
    )
    run_pass()

    # What was before it came is not its history.
    assert [one["code"] for one in explained(api_as, alice, second)["history"]] == ["no_server"]
    assert [one["code"] for one in explained(api_as, alice, first)["history"]] == [
        "no_server",
        "no_pool",
    ]


def test_before_the_first_pass_there_is_a_place_and_no_reason(
    api_as: As, alice: User, example: Example
) -> None:
    (task,) = enqueue(alice, example.dev_queue)

    answer = explained(api_as, alice, task)

    assert (answer["code"], answer["sentence"], answer["reasons"]) == ("", "", [])
    assert (answer["position"], answer["history"]) == (1, [])


def test_a_task_that_has_its_place_says_whom_it_waits_for(
    api_as: As, alice: User, charlie: User, root: User, example: Example
) -> None:
    make_node(example.bare_metal, name="b1", gpus=8)
    (taker,), (own,), (foreign,) = (
        enqueue(alice, example.dev_queue),
        enqueue(alice, example.dev_queue),
        enqueue(charlie, example.research_queue),
    )

    def admit(task: Task, state: str) -> Attempt:
        Task.objects.filter(pk=task.pk).update(state=TaskState.ALLOCATED)
        assert task.queue is not None
        return Attempt.objects.create(
            task=task,
            generation=1,
            state=state,
            queue=task.queue,
            policy=task.queue.policy,
            pool=example.bare_metal,
            allocated_at=timezone.now(),
        )

    attempt = admit(taker, AttemptState.ALLOCATED)
    victims = [admit(task, AttemptState.STOPPING) for task in (own, foreign)]
    attempt.blocked_by.set(victims)

    answer = explained(api_as, alice, taker)

    assert (answer["state"], answer["code"]) == ("allocated", "draining")
    assert answer["reasons"][0]["details"][0]["tasks"] == [str(own.pk)]
    assert answer["reasons"][0]["details"][0]["task_count"] == 2
    assert foreign.name not in str(answer)
    assert foreign.name in str(explained(api_as, root, taker))
    Attempt.objects.filter(pk__in=[one.pk for one in victims]).update(state=AttemptState.FINISHED)
    assert explained(api_as, alice, taker)["reasons"] == []


def test_who_sees_a_pool_reads_why_its_nodes_are_paused(
    api_as: As, example: Example, alice: User, root: User
) -> None:
    node = make_node(example.bare_metal, name="b1")
    node_pause(actor=root, node=node, reason="New cooling until Friday.")
    (task,) = enqueue(alice, example.dev_queue)
    short = {"pool": example.bare_metal.pk, "key": "gpu", "needed": 2000, "free": 1000}
    store(task, {"code": "capacity", "details": [short]})
    paused = "1 of 1 node takes nothing new: 1 paused"

    (without,) = explained(api_as, alice, task)["reasons"]
    assign_perm("policies.view_pool", alice, example.bare_metal)
    (with_pool,) = explained(api_as, alice, task)["reasons"]

    words = "It starts once nodes there take tasks again."
    assert without["help"].startswith(words)
    assert without["help"].endswith(f". Your first pool: {paused}.")
    assert with_pool["help"] == (
        f"{words} {example.bare_metal.name}: {paused} (New cooling until Friday)."
    )


def test_who_waits_for_capacity_reads_which_nodes_take_nothing_new(
    api_as: As, example: Example, alice: User
) -> None:
    closed: dict[str, dict[str, Any]] = {
        "b1": {"is_draining": True},
        "b2": {"paused_at": timezone.now()},
        "b3": {"state": "suspect"},
        "b4": {},
    }
    for name, changes in closed.items():
        node = make_node(example.bare_metal, name=name)
        Node.objects.filter(pk=node.pk).update(**changes)
    (task,) = enqueue(alice, example.dev_queue)
    short = {"pool": example.bare_metal.pk, "key": "gpu", "needed": 2000, "free": 1000}
    store(task, {"code": "capacity", "details": [short]})

    (reason,) = explained(api_as, alice, task)["reasons"]

    assert reason["help"].startswith("It starts once enough work has ended, or nodes there take")
    assert reason["help"].endswith(
        ": 3 of 4 nodes take nothing new: 1 draining, 1 paused, 1 suspect."
    )
