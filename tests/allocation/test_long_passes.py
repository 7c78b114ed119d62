"""Passes that decide for long: the server ends only those whose process is silent."""

from collections.abc import Callable

import pytest
from django.db import connection

from apps.accounts.models import User
from apps.allocation import services
from apps.allocation.engine import decide
from apps.allocation.engine.plan import Plan
from apps.allocation.engine.snapshot import Snapshot
from apps.allocation.services import run_pass
from tests.allocation.state import enqueue, make_node, states
from tests.people import Example
from tests.services.ports import wait_until

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]

SILENT_MS = 300


@pytest.fixture
def served(example: Example) -> Example:
    make_node(example.bare_metal, name="b1")
    return example


def decide_until(is_over: Callable[[float | None], bool]) -> Callable[[Snapshot], Plan]:
    """An engine that decides until its session is gone or `is_over`.

    The argument says how many seconds after its start the transaction sent its last statement;
    None: the session is gone.
    """

    def decide_for_long(snapshot: Snapshot) -> Plan:
        session = connection.connection.info.backend_pid
        other = connection.copy()
        with other.cursor() as cursor:

            def is_done() -> bool:
                cursor.execute(
                    "SELECT extract(epoch FROM query_start - xact_start) FROM pg_stat_activity "
                    "WHERE pid = %s",
                    [session],
                )
                found = cursor.fetchone()
                return is_over(float(found[0]) if found else None)

            wait_until(is_done, what="the pass has decided for long")
        other.close()
        return decide(snapshot)

    return decide_for_long


def test_a_pass_that_decides_for_long_is_not_ended(
    served: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = enqueue(alice, served.dev_queue)
    monkeypatch.setattr(services, "SILENT_MOST_MS", SILENT_MS)
    monkeypatch.setattr(services, "ALIVE_EVERY_S", 0.02)
    monkeypatch.setattr(
        services.ENGINE,
        "decide",
        decide_until(lambda late: late is None or late > 4 * SILENT_MS / 1000),
    )

    assert run_pass().placed == 1

    assert states(tasks) == ["allocated"]
