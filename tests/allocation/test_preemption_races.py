"""Victims and takers that change between deciding and writing, or while victims drain."""

import threading

import pytest
from django.db import connections, transaction

from apps.accounts.models import User
from apps.allocation.applier import AppliedPlan
from apps.allocation.services import run_pass
from apps.execution.selectors import attempts_stranded
from apps.nodes.models import Node, NodeState
from apps.tasks.models import Attempt, Task, TaskGroup
from apps.tasks.services.attempts.ends import attempt_end_unstarted, attempt_withdraw
from apps.tasks.services.members.launch import member_claim_start
from apps.tasks.services.stop import task_abort, task_dequeue
from tests.allocation.state import (
    apply,
    begin,
    decided,
    devices_of,
    end,
    enqueue,
    latest,
    overbooked,
    states,
)
from tests.people import Example
from tests.services.timeouts import scale_timeout


@pytest.mark.parametrize(
    ("code", "want"),
    [pytest.param(0, "completed", id="done"), pytest.param(3, "failed", id="failed")],
)
def test_what_was_over_before_its_node_heard_of_the_stop_keeps_its_result(
    full: list[Task], example: Example, charlie: User, code: int, want: str
) -> None:
    (taker,) = enqueue(charlie, example.research_queue)
    run_pass()

    end(latest(full[1]), code=code, is_stop_asked=False)

    assert states(full) == ["running", want]
    begin(latest(taker))


def test_a_victim_that_ended_by_itself_since_leaves_its_capacity_to_the_taker(
    full: list[Task], example: Example, charlie: User
) -> None:
    (taker,) = enqueue(charlie, example.research_queue)
    loaded, plan = decided()
    end(latest(full[1]), code=0, is_stop_asked=False)

    applied = apply(loaded, plan)

    assert (len(applied.placed), len(applied.preempted)) == (1, 0)
    assert states([*full, taker]) == ["running", "completed", "allocated"]
    assert not latest(taker).blocked_by.exists()
    assert len(devices_of(latest(taker))) == 4
    assert overbooked() == []


def test_a_victim_that_is_aborted_since_stays_aborted_and_is_waited_for(
    full: list[Task], example: Example, alice: User, charlie: User
) -> None:
    (taker,) = enqueue(charlie, example.research_queue)
    loaded, plan = decided()
    task_abort(actor=alice, task=full[1])

    apply(loaded, plan)

    assert not member_claim_start(member_id=latest(taker).members.get().pk, token="t")
    end(latest(full[1]))
    begin(latest(taker))
    victim = Task.objects.get(pk=full[1].pk)
    assert (victim.state, victim.preemptions) == ("aborted", 0)


def test_nobody_stops_for_a_task_that_does_not_wait_any_more(
    full: list[Task], example: Example, charlie: User
) -> None:
    (taker,) = enqueue(charlie, example.research_queue)
    loaded, plan = decided()
    task_dequeue(actor=charlie, task=taker)

    applied = apply(loaded, plan)

    assert applied == AppliedPlan(skipped=1)
    assert states([*full, taker]) == ["running", "running", "draft"]
    assert Task.objects.get(pk=full[1].pk).preemptions == 0


def test_a_plan_that_is_applied_twice_preempts_once(
    full: list[Task], example: Example, charlie: User
) -> None:
    enqueue(charlie, example.research_queue)
    loaded, plan = decided()
    apply(loaded, plan)

    again = apply(loaded, plan)

    assert (len(again.placed), len(again.preempted), again.skipped) == (0, 0, 1)
    assert Task.objects.get(pk=full[1].pk).preemptions == 1


def test_a_taker_that_is_aborted_while_it_waits_leaves_nothing_behind(
    full: list[Task], example: Example, charlie: User
) -> None:
    (taker,) = enqueue(charlie, example.research_queue)
    run_pass()
    attempt, victim = latest(taker), latest(full[1])
    task_abort(actor=charlie, task=taker)
    assert attempt_end_unstarted(attempt_id=attempt.pk)

    # The victim still stops; what it holds is its own until it is gone.
    assert run_pass().placed == 0
    victim.refresh_from_db()
    assert (victim.state, victim.stops_for) == ("stopping", None)
    end(victim)
    run_pass()

    assert states([*full, taker]) == ["running", "allocated", "aborted"]
    begin(latest(full[1]))
    assert overbooked() == []


def test_nobody_takes_more_of_a_policy_that_leaves_already(
    full: list[Task], example: Example, charlie: User
) -> None:
    """The taker is gone, its victim still stops: Dev is within its reservation without it."""
    taker, following = enqueue(charlie, example.research_queue, 2)
    run_pass()
    attempt = latest(taker)
    task_abort(actor=charlie, task=taker)
    assert attempt_end_unstarted(attempt_id=attempt.pk)

    assert run_pass().preempted == 0
    assert states([*full, following]) == ["running", "stopping", "queued"]
    reasons = TaskGroup.objects.get(queue=example.research_queue).reason["reasons"]
    assert "draining" in [one["code"] for one in reasons]
    end(latest(full[1]))
    run_pass()

    assert states([*full, following]) == ["running", "queued", "allocated"]
    begin(latest(following))
    assert overbooked() == []


def test_a_taker_whose_node_falls_silent_while_victims_drain_waits_again(
    full: list[Task], node: Node, example: Example, charlie: User
) -> None:
    (taker,) = enqueue(charlie, example.research_queue)
    run_pass()
    Node.objects.update(state=NodeState.SUSPECT)

    (stranded,) = attempts_stranded()
    assert attempt_withdraw(attempt_id=stranded, detail="silent")
    assert run_pass().placed == 0
    assert states([*full, taker]) == ["running", "stopping", "queued"]

    # What ran there holds its capacity until its node answers.
    Node.objects.update(state=NodeState.HEALTHY)
    end(latest(full[1]))
    assert run_pass().preempted == 0
    begin(latest(taker))
    assert overbooked() == []


def test_an_attempt_whose_launch_has_begun_is_not_withdrawn(
    node: Node, example: Example, alice: User
) -> None:
    (task,) = enqueue(alice, example.dev_queue)
    run_pass()
    attempt = latest(task)
    member_claim_start(member_id=attempt.members.get().pk, token="t")

    assert not attempt_withdraw(attempt_id=attempt.pk, detail="silent")
    assert states([task]) == ["allocated"]


def test_a_pass_that_fails_half_way_stops_nobody(
    full: list[Task], example: Example, charlie: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    (taker,) = enqueue(charlie, example.research_queue)

    def fail(*_: object, **__: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("apps.allocation.services.apply_reasons", fail)
    with pytest.raises(OSError, match="disk is full"):
        run_pass()

    assert states([*full, taker]) == ["running", "running", "queued"]
    assert Attempt.objects.filter(state="running").count() == 2


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_a_victim_that_somebody_is_changing_right_now_keeps_its_capacity(
    full: list[Task], example: Example, alice: User, charlie: User
) -> None:
    (taker,) = enqueue(charlie, example.research_queue)
    loaded, plan = decided()
    is_held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                Attempt.objects.select_for_update().get(task=full[1])
                is_held.set()
                may_go.wait(scale_timeout(30))
        finally:
            connections.close_all()

    holding = threading.Thread(target=hold)
    holding.start()
    assert is_held.wait(scale_timeout(30))

    # The pass does not wait for the lock, and the taker waits for the next pass.
    applied = apply(loaded, plan)
    may_go.set()
    holding.join(scale_timeout(30))

    assert applied == AppliedPlan(skipped=1)
    assert states([*full, taker]) == ["running", "running", "queued"]
    assert run_pass().preempted == 1
