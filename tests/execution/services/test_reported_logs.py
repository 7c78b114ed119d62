"""When the logs that a node reports are stored, and what that takes of an exchange."""

from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.execution.protocol.answers import LogPart
from apps.execution.services import reporting
from apps.nodes.models import Node
from apps.tasks.models import Attempt, Holding
from apps.tasks.services import logs
from apps.tasks.services.attempts import member_claim_start, member_started
from tests.allocation.state import enqueue, make_node
from tests.cast import Example
from tests.execution.services.test_reporting import BOOT, hear, seen, told

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
    member_claim_start(holding_id=claimed.holdings.get().pk, token="t")
    states: list[tuple[str, str]] = []
    plain = logs.log_append

    def append(**values: Any) -> int:
        states.append(seen(claimed))
        return plain(**values)

    monkeypatch.setattr(reporting, "log_append", append)
    piece = LogPart(str(claimed.task_id), 1, 0, 0, b"abc")

    hear(node, told(claimed, "running", started_wall_s=1.0), parts=(piece,))

    assert states == [("running", "running")]


def test_what_storing_logs_takes_of_one_exchange_is_bounded(
    node: Node, example: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        enqueue(alice, example.dev_queue)
    run_pass()
    first, second = Attempt.objects.order_by("pk")
    Holding.objects.filter(attempt=first).update(log_offset=10)
    for one in (first, second):
        holding = one.holdings.get()
        member_claim_start(holding_id=holding.pk, token="t")
        member_started(holding_id=holding.pk, at=timezone.now())
    times = iter([0.0, 0.0, reporting.LOGS_S])
    monkeypatch.setattr(reporting, "monotonic", lambda: next(times))
    pieces = (
        LogPart(str(first.task_id), 1, 0, 10, b"abc"),
        LogPart(str(second.task_id), 1, 0, 0, b"abc"),
    )

    hear(node, told(first, "running"), told(second, "running"), parts=pieces)

    # The one of which least is stored comes first; the other is asked for again.
    assert first.holdings.get().log_offset == 10
    assert second.holdings.get().log_offset == 3
