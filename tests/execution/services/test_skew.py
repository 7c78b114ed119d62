"""A node whose wall clock is wrong tells the right times all the same."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.execution.protocol.answers import Clocks, ReportedMember, SyncReport
from apps.execution.services.reports import ReportContext, members_of, report_apply
from apps.nodes.models import Node
from apps.tasks.models import Attempt
from apps.tasks.services.members.launch import member_claim_start
from tests.allocation.state import enqueue, make_node
from tests.people import Example

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("hours", [-2, 2, -400_000])
def test_a_node_whose_clock_is_wrong_tells_when_its_work_began(
    example: Example, alice: User, hours: int
) -> None:
    node = make_node(example.bare_metal, name="b1", boot_id="boot-1")
    enqueue(alice, example.dev_queue)
    run_pass()
    attempt = Attempt.objects.get()
    member_claim_start(member_id=attempt.members.get().pk, token="t")
    there = timezone.now() + timedelta(hours=hours)
    began = timezone.now() - timedelta(minutes=10)
    seen = ReportedMember(
        task_id=str(attempt.task_id),
        generation=attempt.generation,
        rank=0,
        state="running",
        is_stop_asked=False,
        started_wall_s=there.timestamp() - 600,
    )
    clocks = Clocks(helper="1", boot_id="boot-1", uptime_s=100.0, wall_s=there.timestamp())

    node = Node.objects.get(pk=node.pk)
    report_apply(node, SyncReport("v", (seen,), ()), clocks, ReportContext(members_of(node)))

    attempt.refresh_from_db()
    assert attempt.started_at is not None
    assert abs(attempt.started_at - began) < timedelta(minutes=2)
