"""What a node, or a task through it, reports and no database can take: the others go on."""

import json
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.execution.protocol.answers import Clocks, SyncReport, decode
from apps.execution.services.reports import ReportContext, member_key, members_of, report_apply
from apps.nodes.models import Node
from apps.tasks.models import Attempt
from apps.tasks.services.members.launch import member_claim_start, member_note_start
from tests.allocation.state import enqueue, make_node
from tests.execution.services.test_reports import BOOT, apply_report, member_report, states_of
from tests.people import Example


@pytest.fixture
def node(example: Example) -> Node:
    return make_node(example.bare_metal, name="b1", boot_id=BOOT)


def decoded(*members: dict[str, object]) -> SyncReport:
    """As it comes from a node."""
    around = {"protocol": 1, "helper": "1", "boot_id": BOOT, "uptime_s": 100.0, "wall_s": 0.0}
    report = {"version": "v", "members": members, "logs": []}
    _, member_report = decode(json.dumps(around | {"answer": report}).encode(), SyncReport)
    assert isinstance(member_report, SyncReport)
    return member_report


def reported(attempt: Attempt, **changes: object) -> dict[str, object]:
    return {
        "task_id": str(attempt.task_id),
        "generation": attempt.generation,
        "rank": 0,
        "state": "exited",
        "is_stop_asked": False,
        "exit_code": 0,
        **changes,
    }


@pytest.fixture
def two(node: Node, example: Example, alice: User) -> list[Attempt]:
    enqueue(alice, example.dev_queue)
    enqueue(alice, example.dev_queue)
    run_pass()
    attempts = list(Attempt.objects.order_by("task_id"))
    assert len(attempts) == 2
    for attempt in attempts:
        member_claim_start(member_id=attempt.members.get().pk, token="t")
        member_note_start(member_id=attempt.members.get().pk, at=timezone.now())
    return attempts


@pytest.mark.parametrize(
    ("hostile", "want"),
    [
        pytest.param({"checkpointed_wall_s": 99999999999999}, "completed", id="dated ahead"),
        pytest.param({"checkpointed_wall_s": -1e300}, "completed", id="dated before all time"),
        pytest.param({"started_wall_s": 1e300, "ended_wall_s": -1e300}, "completed", id="times"),
        pytest.param({"error": "a\0b"}, "completed", id="NUL"),
        pytest.param({"error": "a\udc80b"}, "completed", id="half a pair"),
        pytest.param({"error": "x" * 100_000}, "failed", id="long words"),
        pytest.param({"exit_code": 2**70}, "failed", id="a code of 70 bits"),
        pytest.param({"exit_code": "0"}, "failed", id="a code in words"),
        pytest.param({"log_bytes": -1}, "failed", id="less than no log"),
    ],
)
def test_one_hostile_member_does_not_hold_up_the_others(
    node: Node, two: list[Attempt], hostile: dict[str, object], want: str
) -> None:
    """One `touch -d @99999999999999` stopped the books of its node for ever."""
    bad, good = two
    report = decoded(reported(bad, **hostile), reported(good))

    node.refresh_from_db()
    clocks = Clocks(helper="1", boot_id=BOOT, uptime_s=100.0, wall_s=0.0)
    result = report_apply(node, report, clocks, ReportContext(members_of(node)))

    assert states_of(good) == ("finished", "completed")
    assert states_of(bad) == ("finished", want)
    assert set(result.acknowledged) == {member_key(one.members.get()) for one in two}
    assert (str(bad.task_id) in result.problem) == (want == "failed")


def test_a_result_that_no_column_takes_fails_its_task_alone(node: Node, two: list[Attempt]) -> None:
    bad, good = two
    unforeseen = member_report(bad, "exited", exit_code=2**70)

    result = apply_report(node, unforeseen, member_report(good, "exited", exit_code=0))

    assert states_of(good) == ("finished", "completed")
    assert states_of(bad) == ("finished", "failed")
    assert bad.detail.startswith("The node's report of it cannot be used:")
    assert str(bad.task_id) in result.problem


def test_a_member_that_runs_and_cannot_be_read_is_left_alone(
    node: Node, two: list[Attempt]
) -> None:
    bad, good = two
    report = decoded(
        reported(bad, state="running", log_bytes="many"), reported(good, state="running")
    )

    node.refresh_from_db()
    clocks = Clocks(helper="1", boot_id=BOOT, uptime_s=100.0, wall_s=0.0)
    result = report_apply(node, report, clocks, ReportContext(members_of(node)))

    assert states_of(bad) == ("running", "running")
    assert (result.acknowledged, result.to_stop) == ((), ())
    assert "log_bytes" in result.problem


def test_thousands_of_members_that_nobody_knows_are_looked_up_in_few_questions(
    node: Node, two: list[Attempt]
) -> None:
    running = two[0]
    strange = [
        member_report(running, "exited", task_id=str(UUID(int=number))) for number in range(2000)
    ]
    odd = [member_report(running, "exited", task_id=name) for name in ("-" * 36, "0" * 36, "t1")]

    with CaptureQueriesContext(connection) as queries:
        result = apply_report(node, *(member_report(one, "running") for one in two), *strange, *odd)

    assert len(result.unknown) == 2003
    assert len(queries) < 20
