"""Passes that decide for long: the server ends only those whose process is silent."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import DatabaseError, connection
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation import services
from apps.allocation.engine import decide
from apps.allocation.engine.model.plan import Plan
from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.models import PassState
from apps.allocation.services import run_pass
from rpm.health import check_pass
from rpm.management.commands.serve_passes import decide_once
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
                # A session that the server is ending has no transaction any more, and is listed
                # for a moment.
                cursor.execute(
                    "SELECT coalesce(extract(epoch FROM query_start - xact_start), 0) "
                    "FROM pg_stat_activity WHERE pid = %s",
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
    assert PassState.objects.get().failed_at is None


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes that decide for too long."""
    monkeypatch.setattr(services, "SILENT_MOST_MS", SILENT_MS)
    monkeypatch.setattr(services, "DECIDE_MOST_S", 0.0)
    monkeypatch.setattr(services.ENGINE, "decide", decide_until(lambda late: late is None))


@pytest.mark.usefixtures("endless")
def test_a_pass_that_the_server_ends_is_what_the_doctor_names(served: Example) -> None:
    with pytest.raises(DatabaseError, match="idle-in-transaction timeout"):
        run_pass()

    finding = check_pass()

    assert not finding.is_fine
    assert finding.words == "no pass was ever made; a pass failed 0 s ago"
    assert "idle-in-transaction timeout. If none runs: Start a worker" in finding.fix


@pytest.mark.usefixtures("endless")
def test_passes_go_on_after_the_server_ended_one(
    served: Example, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = enqueue(alice, served.dev_queue)

    assert decide_once() is False
    monkeypatch.setattr(services.ENGINE, "decide", decide)
    assert decide_once() is True

    assert states(tasks) == ["allocated"]
    assert check_pass().is_fine


def test_any_failure_is_named_until_a_pass_succeeds(
    served: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Snapshot) -> Plan:
        raise AssertionError("a task that fits has members")

    long_ago = timezone.now() - timedelta(hours=1)
    PassState.objects.update(last_at=long_ago)
    monkeypatch.setattr(services.ENGINE, "decide", fail)
    with pytest.raises(AssertionError):
        run_pass()

    assert "a pass failed" in check_pass().words
    assert "AssertionError: a task that fits has members" in check_pass().fix

    monkeypatch.setattr(services.ENGINE, "decide", decide)
    run_pass()

    assert check_pass().is_fine
