"""Consolidation, carried out: a moved task stops once, and goes on where its capacity was kept."""

import threading

import pytest
from django.db import connections
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation import services
from apps.allocation.loader import LoadedSnapshot, load
from apps.allocation.models import PassRecord
from apps.allocation.services import run_pass
from apps.nodes.models import Device, DeviceState, Node
from apps.policies.models import LiveState, Policy, PolicySpending, Profile, Queue
from apps.tasks.models import Attempt, Task
from apps.tasks.services.enqueue.submission import task_enqueue
from apps.tasks.services.members.launch import member_claim_start
from apps.tasks.services.stop import task_abort, task_dequeue
from tests.allocation.state import begin, end, enqueue, latest, make_node, overbooked, states
from tests.people import Example
from tests.services.timeouts import scale_timeout


@pytest.fixture
def nodes(example: Example) -> list[Node]:
    LiveState.objects.update(consolidation=True)
    return [make_node(example.bare_metal, name=name, gpus=4) for name in ("b1", "b2")]


@pytest.fixture
def torn(nodes: list[Node], example: Example, alice: User) -> list[Task]:
    """Two tasks of 2 GPUs run on two nodes of 4: half of each is free."""
    wants(example, 2)
    tasks = enqueue(alice, example.dev_queue, 3)
    run_pass()
    begin(*map(latest, tasks))
    by_node: dict[int | None, list[Task]] = {}
    for task in tasks:
        by_node.setdefault(latest(task).members.get().node_id, []).append(task)
    pair = next(both for both in by_node.values() if len(both) == 2)
    end(latest(pair[0]), code=0, is_stop_asked=False)
    wants(example, 4)
    return [task for task in tasks if task != pair[0]]


def wants(example: Example, gpus: int) -> None:
    Profile.objects.filter(pk=example.profile.pk).update(request={"gpu": str(gpus)})


def moved_of(tasks: list[Task]) -> Task:
    (moved,) = [task for task in tasks if states([task]) == ["stopping"]]
    return moved


def node_of(task: Task) -> int | None:
    return latest(task).members.get().node_id


def pause_above(name: str) -> None:
    """Put a paused policy above this one."""
    policy = Policy.objects.get(name=name)
    above = Policy.objects.create(name="Above", group=policy.group, paused_at=timezone.now())
    Policy.objects.filter(pk=policy.pk).update(parent=above)


def test_a_task_is_moved_to_its_new_placements_and_the_large_one_starts_where_it_was(
    torn: list[Task], example: Example, alice: User
) -> None:
    (large,) = enqueue(alice, example.dev_queue)

    outcome = run_pass()

    assert (outcome.placed, outcome.preempted, outcome.moved) == (1, 0, 1)
    moved = moved_of(torn)
    (stays,) = [task for task in torn if task != moved]
    assert node_of(large) == node_of(moved) != node_of(stays)
    assert PassRecord.objects.latest("id").decisions["moved"][0]["task"] == str(moved.pk)
    assert not member_claim_start(member_id=latest(large).members.get().pk, token="t")

    end(latest(moved))
    assert states([moved]) == ["queued"]
    run_pass()

    assert states([moved, large]) == ["allocated", "allocated"]
    again = latest(moved)
    assert (again.generation, again.request, node_of(moved)) == (2, {"gpu": 2000}, node_of(stays))
    assert Task.objects.get(pk=moved.pk).preemptions == 1
    begin(latest(large), again)
    assert states([*torn, large]) == ["running"] * 3
    assert overbooked() == []


def test_passes_during_a_move_decide_nothing_and_keep_the_placements(
    torn: list[Task], example: Example, alice: User, charlie: User
) -> None:
    (large,) = enqueue(alice, example.dev_queue)
    run_pass()
    moved = moved_of(torn)
    wants(example, 2)
    (late,) = enqueue(charlie, example.research_queue)
    LiveState.objects.update(preemption="none", consolidation=False)

    assert [run_pass().placed for _ in range(2)] == [0, 0]
    groups = load(now_us=0).snapshot.running
    assert not any(running_task.is_leaving for group in groups for running_task in group.tasks)
    assert sum(len(group.tasks) * group.request.get("gpu") for group in groups) == 8000
    end(latest(moved))
    assert run_pass().placed == 0

    assert states([moved, large, late]) == ["allocated", "allocated", "queued"]


def test_who_is_placed_where_a_moved_task_still_runs_waits_for_it(
    torn: list[Task], example: Example, alice: User
) -> None:
    """The large task is aborted meanwhile: its capacity is free, and not yet empty."""
    (large,) = enqueue(alice, example.dev_queue)
    run_pass()
    moved = moved_of(torn)
    task_abort(actor=alice, task=large)
    end(latest(large), code=None)
    wants(example, 2)
    late = enqueue(alice, example.dev_queue, 2)

    assert run_pass().placed == 2

    for task in late:
        assert list(latest(task).blocked_by.all()) == [latest(moved)]
        assert not member_claim_start(member_id=latest(task).members.get().pk, token="t")
    end(latest(moved))
    run_pass()
    begin(latest(moved), *map(latest, late))
    assert overbooked() == []


def test_a_moved_task_that_is_aborted_goes_nowhere(
    torn: list[Task], example: Example, alice: User
) -> None:
    (large,) = enqueue(alice, example.dev_queue)
    run_pass()
    moved = moved_of(torn)

    task_abort(actor=alice, task=moved)
    end(latest(moved))
    run_pass()

    assert states([moved, large]) == ["aborted", "allocated"]
    assert latest(moved).generation == 1
    begin(latest(large))
    assert overbooked() == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda: Node.objects.update(is_draining=True), id="the node is drained"),
        pytest.param(lambda: Node.objects.update(state="suspect"), id="the node fell silent"),
        pytest.param(
            lambda: Device.objects.update(state=DeviceState.MISSING), id="a device is gone"
        ),
        pytest.param(lambda: Queue.objects.update(paused_at=timezone.now()), id="its queue paused"),
        pytest.param(lambda: LiveState.objects.update(is_enabled=False), id="all is off"),
        pytest.param(lambda: pause_above("Dev"), id="a policy above its own is paused"),
    ],
)
def test_a_moved_task_whose_placements_are_no_good_any_more_waits_like_any_other(
    torn: list[Task], example: Example, alice: User, change: object
) -> None:
    enqueue(alice, example.dev_queue)
    run_pass()
    moved = moved_of(torn)
    assert callable(change)
    change()

    end(latest(moved))
    run_pass()

    assert states([moved]) == ["queued"]
    assert Attempt.objects.filter(task=moved).count() == 1


def test_a_moved_task_goes_on_though_the_budget_is_spent_meanwhile(
    torn: list[Task], example: Example, alice: User
) -> None:
    (large,) = enqueue(alice, example.dev_queue)
    run_pass()
    moved = moved_of(torn)
    Policy.objects.update(budget=1, budget_stops=True)
    PolicySpending.objects.create(
        policy=example.dev, at=timezone.now(), spent=1_000_000, noticed_budget=1
    )
    (late,) = enqueue(alice, example.dev_queue)

    end(latest(moved))
    run_pass()

    assert states([moved, large, late]) == ["allocated", "allocated", "queued"]


def test_a_task_that_would_not_start_again_is_not_moved(
    torn: list[Task], example: Example, alice: User
) -> None:
    Task.objects.update(is_restartable=False)
    (large,) = enqueue(alice, example.dev_queue)

    assert run_pass().moved == 0

    assert states([*torn, large]) == ["running", "running", "queued"]


def test_a_moved_task_that_was_done_before_it_heard_of_it_is_done(
    torn: list[Task], example: Example, alice: User
) -> None:
    enqueue(alice, example.dev_queue)
    run_pass()
    moved = moved_of(torn)

    end(latest(moved), code=0, is_stop_asked=False)

    assert states([moved]) == ["completed"]


def test_a_moved_task_waits_for_a_victim_on_its_node_that_was_aborted_since(
    torn: list[Task], example: Example, alice: User
) -> None:
    (large,) = enqueue(alice, example.dev_queue)
    run_pass()
    moved = moved_of(torn)
    (victim,) = [task for task in torn if task != moved]
    Task.objects.filter(pk=victim.pk).update(state="stopping")
    Attempt.objects.filter(task=victim).update(
        state="stopping", is_preempted=True, stop_target="queued", stops_for=latest(large)
    )
    task_abort(actor=alice, task=victim)

    end(latest(moved))
    run_pass()

    assert list(latest(moved).blocked_by.all()) == [latest(victim)]


def test_a_placement_is_kept_when_the_moved_task_stops_while_a_pass_reads_the_state(
    torn: list[Task],
    example: Example,
    alice: User,
    charlie: User,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enqueue(alice, example.dev_queue)
    run_pass()
    moved = moved_of(torn)
    wants(example, 2)
    (late,) = enqueue(charlie, example.research_queue)
    LiveState.objects.update(preemption="none", consolidation=False)
    stopping = [latest(moved)]

    def load_after_the_end(*, now_us: int) -> LoadedSnapshot:
        while stopping:
            end(stopping.pop())
        return load(now_us=now_us)

    monkeypatch.setattr(services, "load", load_after_the_end)
    run_pass()

    assert states([moved, late]) == ["allocated", "queued"]
    assert overbooked() == []


def test_a_moved_task_that_was_enqueued_again_since_waits_like_any_other(
    torn: list[Task], example: Example, alice: User
) -> None:
    """It may be another size by now."""
    enqueue(alice, example.dev_queue)
    run_pass()
    moved = moved_of(torn)
    end(latest(moved))

    task_dequeue(actor=alice, task=moved)
    task_enqueue(actor=alice, task=moved, queue=example.dev_queue.pk)
    run_pass()

    assert states([moved]) == ["queued"]
    assert not Attempt.objects.filter(moves_to__isnull=False).exists()


@pytest.mark.postgres_only
@pytest.mark.django_db(transaction=True)
def test_two_that_change_places_and_end_at_the_same_moment_do_not_wait_in_a_circle(
    nodes: list[Node],
    example: Example,
    alice: User,
    charlie: User,
) -> None:
    wants(example, 4)
    # Of two queues: tasks of the same queue leave one after the other anyway.
    tasks = enqueue(alice, example.dev_queue) + enqueue(charlie, example.research_queue)
    run_pass()
    begin(*map(latest, tasks))
    moves = [[[node_of(task), latest(task).members.get().devices]] for task in tasks]
    Task.objects.update(state="stopping")
    for task, others in zip(tasks, reversed(moves), strict=True):
        Attempt.objects.filter(task=task).update(
            state="stopping",
            is_preempted=True,
            stop_asked_at=timezone.now(),
            stop_target="queued",
            moves_to=others,
        )
    together = threading.Barrier(2)

    def finish(task: Task) -> None:
        try:
            together.wait(scale_timeout(30))
            end(latest(task))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=finish, args=[task]) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(scale_timeout(60))
    run_pass()

    assert states(tasks) == ["allocated", "allocated"]
    begin(*map(latest, tasks))
    assert overbooked() == []
