"""What there is to do on nodes."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.execution.container_specs import container_spec
from apps.execution.selectors import (
    attempts_over_time,
    attempts_stranded,
    members_to_launch,
    members_to_stop,
    members_unsent,
)
from apps.nodes.models import Node, Volume
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.services.attempts.next_state import MemberResult
from apps.tasks.services.members.exits import member_note_exit
from apps.tasks.services.members.launch import member_claim_start, member_note_start
from apps.tasks.services.stop import task_abort
from tests.allocation.state import change_content, enqueue, make_node
from tests.people import Example


@pytest.fixture
def node(example: Example) -> Node:
    return make_node(example.bare_metal, name="b1")


@pytest.fixture
def attempts(node: Node, example: Example, alice: User) -> list[Attempt]:
    """Two tasks with their places."""
    enqueue(alice, example.dev_queue, 2)
    run_pass()
    return list(Attempt.objects.order_by("id"))


def to_launch(node: Node) -> list[object]:
    return [member.attempt_id for member in members_to_launch([node.pk], token="t")]


def run(attempt: Attempt) -> Member:
    member = attempt.members.get()
    member_claim_start(member_id=member.pk, token="t")
    member_note_start(member_id=member.pk, at=timezone.now())
    return member


def test_what_was_admitted_is_launched_on_the_nodes_served_here(
    node: Node, attempts: list[Attempt]
) -> None:
    assert to_launch(node) == [attempt.pk for attempt in attempts]
    assert list(members_to_launch([node.pk + 1], token="t")) == []
    assert list(members_to_launch([], token="t")) == []


def test_what_a_process_that_is_gone_had_begun_to_launch_is_launched_again(
    node: Node, attempts: list[Attempt]
) -> None:
    member_claim_start(member_id=attempts[0].members.get().pk, token="gone")
    member_claim_start(member_id=attempts[1].members.get().pk, token="t")

    assert to_launch(node) == [attempts[0].pk]


def test_what_takes_from_others_waits_until_they_are_gone(
    node: Node, attempts: list[Attempt]
) -> None:
    victim, taker = attempts
    taker.blocked_by.add(victim)
    member = run(victim)
    assert to_launch(node) == []

    member_note_exit(member_id=member.pk, ended=MemberResult(143))

    assert to_launch(node) == [taker.pk]


def test_a_start_that_failed_waits_for_its_time(node: Node, attempts: list[Attempt]) -> None:
    first, second = attempts
    now = timezone.now()
    Attempt.objects.filter(pk=first.pk).update(not_before=now + timedelta(seconds=5))
    Attempt.objects.filter(pk=second.pk).update(not_before=now - timedelta(seconds=5))

    assert to_launch(node) == [second.pk]


def test_a_time_that_a_clock_gone_wrong_has_set_holds_nobody_back(
    node: Node, attempts: list[Attempt]
) -> None:
    Attempt.objects.update(not_before=timezone.now() + timedelta(hours=2))

    assert to_launch(node) == [attempt.pk for attempt in attempts]


def test_what_is_to_stop_is_stopped_until_it_has_ended(
    node: Node, attempts: list[Attempt], alice: User
) -> None:
    member = run(attempts[0])
    task_abort(actor=alice, task=Task.objects.get(pk=attempts[0].task_id))
    assert [one.pk for one in members_to_stop([node.pk])] == [member.pk]

    member_note_exit(member_id=member.pk, ended=MemberResult(143))

    assert list(members_to_stop([node.pk])) == []


def test_what_was_never_launched_needs_no_node_to_end(
    node: Node, attempts: list[Attempt], alice: User
) -> None:
    run(attempts[0])
    for attempt in attempts:
        task_abort(actor=alice, task=Task.objects.get(pk=attempt.task_id))

    assert members_unsent() == [attempts[1].members.get().pk]


@pytest.mark.parametrize(
    ("state", "want"),
    [("healthy", False), ("suspect", True), ("refused", True)],
)
def test_what_nobody_has_begun_to_launch_on_a_silent_node_is_stranded(
    node: Node, attempts: list[Attempt], state: str, *, want: bool
) -> None:
    running, waiting = attempts
    run(running)
    Node.objects.update(state=state)

    assert attempts_stranded() == ([waiting.pk] if want else [])


def test_time_is_over_when_the_run_took_as_long_as_the_limit(
    node: Node, attempts: list[Attempt]
) -> None:
    for attempt in attempts:
        run(attempt)
    Task.objects.update(time_limit_s=60)
    began = timezone.now() - timedelta(seconds=61)
    Attempt.objects.filter(pk=attempts[0].pk).update(started_at=began)

    assert attempts_over_time() == [(attempts[0].pk, 60)]


@pytest.mark.postgres_only
def test_time_is_not_over_because_the_clock_of_a_worker_is_ahead(
    node: Node, attempts: list[Attempt], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(attempts[0])
    Task.objects.update(time_limit_s=3600)
    real = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: real() + timedelta(hours=2))

    assert attempts_over_time() == []


def test_a_member_runs_the_spec_of_its_task_with_what_it_was_given(
    node: Node, attempts: list[Attempt], alice: User
) -> None:
    Volume.objects.create(name="data", path="/srv/data", is_read_only=True)
    Node.objects.filter(pk=node.pk).update(report={"account": 0}, runtime="podman")
    change_content(volumes=["data"], environment={"A": "1"})
    type(alice).objects.filter(pk=alice.pk).update(unix_uid=1234, unix_gid=99)
    member = Member.objects.select_related(
        "attempt__task__owner", "attempt__queue__profile", "node"
    ).get(attempt=attempts[0])

    spec = container_spec(member)

    assert (spec.uid, spec.gid) == (1234, 99)
    assert [device.uuid for device in spec.devices] == [
        f"GPU-b1-{index}" for index, _ in member.devices
    ]
    (volume,) = spec.volumes
    assert (volume.source, volume.target, volume.read_only) == ("/srv/data", "/volumes/data", True)
    assert spec.environment == {
        "A": "1",
        "RPM_TASK_ID": str(attempts[0].task_id),
        "RPM_ATTEMPT": "1",
        "RPM_RESUME": "0",
    }
