"""Events become visible in another order than that of their numbers; none is missed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.db import connection

from apps.accounts.models import User
from apps.events.models import Event
from apps.notices.models import Notice, NoticeCursor
from apps.notices.services import notice_maker
from apps.notices.services.rules import notice_rule_create
from apps.tasks.models import Task
from tests.notices.conftest import Submit, notices_make

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres_only]

INSERT = """
INSERT INTO events_event (at, kind, object_type, object_id, queue_id, policy_id, data)
VALUES (now(), 'task.failed', 'task', %s, NULL, NULL, '{}') RETURNING id
"""


@contextmanager
def session() -> Iterator[psycopg.Connection[tuple[int]]]:
    """Another connection to the database of the test."""
    facts = connection.get_connection_params()
    known = {name: facts[name] for name in ("host", "port", "user", "password") if name in facts}
    with psycopg.connect(dbname=connection.settings_dict["NAME"], **known) as other:
        yield other


def insert(other: psycopg.Connection[tuple[int]], task: Task) -> int:
    row = other.execute(INSERT, [str(task.pk)]).fetchone()
    assert row is not None
    return row[0]


@pytest.fixture
def task(alice: User, submit: Submit) -> Task:
    notice_rule_create(user=alice, scope="own", kinds=["failed"])
    found = submit(alice)
    notices_make()
    return found


def noticed() -> list[int | None]:
    return list(Notice.objects.order_by("event_id").values_list("event_id", flat=True))


def test_an_event_that_commits_after_a_later_one_is_not_missed(task: Task) -> None:
    with session() as slow, session() as fast:
        early = insert(slow, task)
        late = insert(fast, task)
        fast.commit()
        assert early < late

        notices_make(run_s=0.2)
        assert noticed() == []

        slow.commit()
        notices_make()

    assert noticed() == [early, late]


def test_numbers_of_a_transaction_that_is_rolled_back_block_nothing(task: Task) -> None:
    with session() as slow, session() as fast:
        insert(slow, task)
        late = insert(fast, task)
        fast.commit()
        notices_make(run_s=0.2)

        slow.rollback()
        notices_make()

    assert noticed() == [late]


def test_a_transaction_that_begins_to_write_later_loses_nothing(task: Task) -> None:
    with session() as early, session() as later:
        first = insert(early, task)
        early.commit()
        second = insert(later, task)

        # The one that is open has a later number: what is before it is complete once it ends.
        notices_make(run_s=0.2)
        third = insert(later, task)
        later.commit()
        notices_make()

    assert noticed() == [first, second, third]


def test_two_processes_make_each_notice_once(task: Task) -> None:
    Event.objects.bulk_create(
        [Event(kind="task.failed", object_type="task", object_id=str(task.pk)) for _ in range(3000)]
    )
    errors: list[BaseException] = []

    def run() -> None:
        try:
            notices_make()
        except BaseException as error:  # noqa: BLE001  # the test reads it
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    notices_make()

    assert errors == []
    last = Event.objects.latest("pk").pk
    assert noticed() == list(range(last - notice_maker.MOST_NOTICES + 1, last + 1))
    assert NoticeCursor.objects.get().event_id == last
