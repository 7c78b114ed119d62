"""Preemption, carried out: victims stop, the taker waits for them, nothing is doubled."""

import random
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.models import PassRecord, PassState
from apps.allocation.services import run_pass
from apps.configuration.services.queues import profile_disconnect
from apps.events.models import Event
from apps.execution.selectors import members_to_launch, members_to_stop
from apps.nodes.models import Node
from apps.policies.models import LiveState, PolicyAmount, Queue
from apps.policies.models.policies import OnPreemption
from apps.tasks.models import Attempt, Task
from apps.tasks.services.attempts.ends import attempt_end_unstarted
from apps.tasks.services.members.launch import member_claim_start
from apps.tasks.services.stop import task_abort
from tests.allocation.state import (
    begin,
    devices_of,
    end,
    enqueue,
    latest,
    make_node,
    overbooked,
    states,
)
from tests.people import Example


def test_who_is_covered_reclaims_what_another_borrowed(
    full: list[Task], example: Example, charlie: User
) -> None:
    (taker,) = enqueue(charlie, example.research_queue)

    outcome = run_pass()

    assert (outcome.placed, outcome.preempted, outcome.moved, outcome.skipped) == (1, 1, 0, 0)
    assert states([*full, taker]) == ["running", "stopping", "allocated"]
    victim = latest(full[1])
    assert (victim.state, victim.stop_target, victim.stops_for) == (
        "stopping",
        "queued",
        latest(taker),
    )
    assert victim.stop_asked_at is not None
    assert list(latest(taker).blocked_by.all()) == [victim]
    assert Task.objects.get(pk=full[1].pk).preemptions == 1
    event = Event.objects.get(kind="task.preempted")
    assert (event.object_id, event.data["then"]) == (str(full[1].pk), "queued")
    record = PassRecord.objects.latest("id")
    assert (record.placed, record.preempted) == (1, 1)
    assert record.decisions["preempted"] == [
        {"task": str(full[1].pk), "pool": example.bare_metal.pk, "beneficiary": str(taker.pk)}
    ]
    assert record.decisions["placed"][0]["waits_for"] == [str(full[1].pk)]
    member = victim.members.get()
    assert list(members_to_stop([member.node_id or 0])) == [member]


def test_nobody_is_preempted_where_the_level_is_none(
    full: list[Task], example: Example, charlie: User
) -> None:
    LiveState.objects.update(preemption="none")
    (taker,) = enqueue(charlie, example.research_queue)

    assert run_pass().preempted == 0
    assert states([*full, taker]) == ["running", "running", "queued"]


def test_the_taker_is_launched_when_its_victims_are_gone_and_not_before(
    full: list[Task], node: Node, example: Example, charlie: User
) -> None:
    (taker,) = enqueue(charlie, example.research_queue)
    run_pass()
    victim, attempt = latest(full[1]), latest(taker)
    freed = devices_of(victim)
    member = attempt.members.get()
    assert list(members_to_launch([node.pk], token="t")) == []
    assert not member_claim_start(member_id=member.pk, token="t")
    assert devices_of(attempt) == []

    end(victim)

    assert list(members_to_launch([node.pk], token="t")) == [member]
    begin(attempt)
    assert devices_of(attempt) == freed
    assert devices_of(victim) == []
    assert states([*full, taker]) == ["running", "queued", "running"]
    assert overbooked() == []


def test_passes_while_victims_drain_decide_nothing(
    full: list[Task], example: Example, charlie: User
) -> None:
    enqueue(charlie, example.research_queue)
    run_pass()
    idle = PassState.objects.get().idle_passes

    outcomes = [run_pass() for _ in range(3)]

    assert [(one.placed, one.preempted) for one in outcomes] == [(0, 0)] * 3
    assert PassState.objects.get().idle_passes == idle + 3


def test_a_victim_waits_again_in_its_old_place_and_runs_again_as_the_next_generation(
    full: list[Task], example: Example, alice: User, charlie: User
) -> None:
    submitted = Task.objects.get(pk=full[1].pk).submitted_at
    (later,) = enqueue(alice, example.dev_queue)
    (taker,) = enqueue(charlie, example.research_queue)
    run_pass()
    end(latest(full[1]))
    assert Task.objects.get(pk=full[1].pk).submitted_at == submitted
    begin(latest(taker))
    run_pass()
    assert states([full[1], later]) == ["queued", "queued"]

    end(latest(taker), code=0)
    run_pass()

    assert states([full[0], full[1], later]) == ["running", "allocated", "queued"]
    begin(latest(full[1]))
    assert latest(full[1]).generation == 2
    assert states([full[1]]) == ["running"]
    assert overbooked() == []


@pytest.mark.parametrize(
    ("setting", "is_restartable", "want"),
    [
        pytest.param(OnPreemption.REQUEUE, True, "queued", id="back to its queue"),
        pytest.param(OnPreemption.PAUSE, True, "paused", id="paused"),
        pytest.param(OnPreemption.END, True, "aborted", id="ended"),
        pytest.param(OnPreemption.REQUEUE, False, "aborted", id="never started again"),
        pytest.param(OnPreemption.PAUSE, False, "aborted", id="nor by a person"),
    ],
)
def test_the_queue_says_what_becomes_of_a_victim(
    full: list[Task],
    example: Example,
    charlie: User,
    setting: str,
    want: str,
    *,
    is_restartable: bool,
) -> None:
    Queue.objects.filter(pk=example.dev_queue.pk).update(on_preemption=setting)
    Task.objects.filter(pk=full[1].pk).update(is_restartable=is_restartable)
    enqueue(charlie, example.research_queue)
    run_pass()

    end(latest(full[1]))

    assert states(full) == ["running", want]
    assert Task.objects.get(pk=full[1].pk).state_detail.startswith("Preempted")


def test_a_victim_whose_queue_was_closed_becomes_a_draft(
    full: list[Task], example: Example, charlie: User
) -> None:
    enqueue(charlie, example.research_queue)
    run_pass()
    profile_disconnect(actor=None, queue=example.dev_queue)

    end(latest(full[1]))

    task = Task.objects.get(pk=full[1].pk)
    assert (task.state, task.queue, task.task_group, task.submitted_at) == (
        "draft",
        None,
        None,
        None,
    )


@pytest.mark.parametrize(
    "protection",
    [
        pytest.param({"min_runtime_s": 3600}, id="started too short ago"),
        pytest.param({"max_preemptions": 2}, id="preempted often enough"),
    ],
)
def test_the_queue_protects_its_tasks(
    full: list[Task], example: Example, charlie: User, protection: dict[str, int]
) -> None:
    Queue.objects.filter(pk=example.dev_queue.pk).update(**protection)
    Task.objects.update(preemptions=2)
    (taker,) = enqueue(charlie, example.research_queue)

    assert run_pass().preempted == 0
    assert states([*full, taker]) == ["running", "running", "queued"]


def test_the_victim_is_who_saved_its_state_last(
    full: list[Task], example: Example, charlie: User
) -> None:
    now = timezone.now()
    Attempt.objects.filter(task=full[0]).update(
        started_at=now - timedelta(hours=2), checkpointed_at=now
    )
    Attempt.objects.filter(task=full[1]).update(started_at=now - timedelta(hours=1))
    enqueue(charlie, example.research_queue)

    run_pass()

    assert states(full) == ["stopping", "running"]


def test_a_fraction_and_its_taker_never_share_more_than_the_device(
    node: Node, example: Example, alice: User, charlie: User
) -> None:
    """The victims hold halves of devices, of which the taker takes the whole."""
    PolicyAmount.objects.filter(policy=example.research).update(reserved_milli=8000)
    PolicyAmount.objects.filter(policy=example.dev).update(reserved_milli=0)
    type(example.profile).objects.filter(pk=example.profile.pk).update(request={"gpu": "0.5"})
    halves = enqueue(alice, example.dev_queue, 16)
    run_pass()
    begin(*Attempt.objects.all())
    type(example.profile).objects.filter(pk=example.profile.pk).update(request={"gpu": "4"})
    (taker,) = enqueue(charlie, example.research_queue)

    assert run_pass().preempted == 8

    victims = [latest(task) for task in halves if states([task]) == ["stopping"]]
    for victim in victims:
        assert not member_claim_start(member_id=latest(taker).members.get().pk, token="t")
        end(victim)
    begin(latest(taker))
    assert overbooked() == []


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_no_device_is_given_out_twice(
    node: Node, example: Example, alice: User, charlie: User, seed: int
) -> None:
    """Passes, starts, ends, aborts and late news in any order."""
    chance = random.Random(seed)
    PolicyAmount.objects.update(reserved_milli=4000)
    LiveState.objects.update(preemption="rank", consolidation=True)
    make_node(example.bare_metal, name="b2", gpus=4)
    preempted = 0
    for _ in range(200):
        step = chance.choice(["enqueue", "pass", "start", "start", "start", "end", "abort"])
        if step == "enqueue":
            who, queue = chance.choice(
                [(alice, example.dev_queue), (charlie, example.research_queue)]
            )
            size = chance.choice(["0.5", "1", "2", "4"])
            type(example.profile).objects.filter(pk=example.profile.pk).update(
                request={"gpu": size}
            )
            enqueue(who, queue, chance.randint(1, 6))
            preempted += run_pass().preempted
        elif step == "pass":
            preempted += run_pass().preempted
        else:
            _one_step(chance, step)
        assert overbooked() == [], f"seed {seed}"
    assert preempted


def _one_step(chance: random.Random, step: str) -> None:
    live = list(Attempt.objects.exclude(state__in=["finished", "lost"]).order_by("id"))
    if not live:
        return
    attempt = chance.choice(live)
    member = attempt.members.get()
    if step == "abort":
        task_abort(actor=attempt.task.owner, task=attempt.task)
    elif attempt.state == "stopping" and member.state == "allocated":
        attempt_end_unstarted(attempt_id=attempt.pk)
    elif step == "end" and member.state == "running":
        end(attempt, code=chance.choice([0, 143]), is_stop_asked=attempt.state == "stopping")
    elif step == "start" and member in members_to_launch([member.node_id or 0], token="t"):
        begin(attempt)
