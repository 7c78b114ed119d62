"""When the logs that a node reports are stored, and what that takes of an exchange."""

from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.execution.protocol.answers import LogChunk
from apps.execution.services import reports
from apps.nodes.models import Node
from apps.tasks.models import Attempt, Member
from apps.tasks.services.members import logs
from apps.tasks.services.members.launch import member_claim_start, member_note_start
from tests.allocation.state import enqueue, make_node
from tests.execution.services.test_reports import BOOT, apply_report, member_report, states_of
from tests.people import Example

pytestmark = pytest.mark.django_db


@pytest.fixture
def node(example: Example) -> Node:
    return make_node(example.bare_metal, name="b1", boot_id=BOOT)


def test_a_log_that_takes_long_delays_neither_starts_nor_ends(
    node: Node, example: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(alice, example.dev_queue)
    run_pass()
    claimed = Attempt.objects.get()
    member_claim_start(member_id=claimed.members.get().pk, token="t")
    states: list[tuple[str, str]] = []
    plain = logs.log_append

    def append(**values: Any) -> int:
        states.append(states_of(claimed))
        return plain(**values)

    monkeypatch.setattr(reports, "log_append", append)
    piece = LogChunk(str(claimed.task_id), 1, 0, 0, b"abc")

    apply_report(node, member_report(claimed, "running", started_wall_s=1.0), parts=(piece,))

    assert states == [("running", "running")]


def test_what_storing_logs_takes_of_one_exchange_is_bounded(
    node: Node, example: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        enqueue(alice, example.dev_queue)
    run_pass()
    first, second = Attempt.objects.order_by("pk")
    Member.objects.filter(attempt=first).update(log_offset=10)
    for one in (first, second):
        member = one.members.get()
        member_claim_start(member_id=member.pk, token="t")
        member_note_start(member_id=member.pk, at=timezone.now())
    times = iter([0.0, 0.0, reports.LOGS_S])
    monkeypatch.setattr(reports, "monotonic", lambda: next(times))
    pieces = (
        LogChunk(str(first.task_id), 1, 0, 10, b"abc"),
        LogChunk(str(second.task_id), 1, 0, 0, b"abc"),
    )

    apply_report(
        node, member_report(first, "running"), member_report(second, "running"), parts=pieces
    )

    # The one of which least is stored comes first; the other is asked for again.
    assert first.members.get().log_offset == 10
    assert second.members.get().log_offset == 3


def test_one_exchange_asks_for_as_many_logs_as_the_node_reads_ended_ones_first() -> None:
    attempt = Attempt(generation=1)
    members = [
        Member(pk=n, attempt=attempt, rank=n, state="running", log_offset=n) for n in range(1500)
    ]
    members.append(Member(pk=9999, attempt=attempt, rank=9999, state="exited", log_offset=77))

    wanted = reports.log_positions(members)

    assert len(wanted) == 1000
    assert [one.rank for one in wanted[:3]] == [9999, 0, 1]
