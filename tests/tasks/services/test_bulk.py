"""Many tasks with one request, and the bounds that protect other users."""

from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import QUEUE_ADMINS, User
from apps.core.errors import BadInput, NotAllowed, NotFound
from apps.policies.models import Queue
from apps.tasks.models import Task
from apps.tasks.services import queues
from apps.tasks.services.enqueue import bulk
from apps.tasks.services.enqueue.bulk import tasks_enqueue_many
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.task_spec import spec_of
from tests.people import Example

pytestmark = pytest.mark.django_db


def described(queue: str | int, **values: Any) -> Any:
    return spec_of({"name": "t", "queue": queue, "command": ["true"], **values})


def test_a_bulk_of_unknown_queues_asks_a_bounded_number_of_times(
    alice: User, example: Example
) -> None:
    items = [described(f"nope{number}") for number in range(bulk.QUEUES - 1)]
    items.append(described(example.dev_queue.name))

    with CaptureQueriesContext(connection) as few:
        tasks_enqueue_many(actor=alice, items=[described("nope"), items[-1]])
    with CaptureQueriesContext(connection) as many:
        answers = tasks_enqueue_many(actor=alice, items=items)

    assert [type(one) for one in answers] == [NotFound] * (bulk.QUEUES - 1) + [Task]
    assert len(many) <= len(few)


def test_a_bulk_names_no_more_than_the_most_queues(alice: User, example: Example) -> None:
    items = [described(example.dev_queue.name)]
    items += [described(f"nope{number}") for number in range(bulk.QUEUES + 180)]
    items.append(described(example.dev_queue.name))

    with CaptureQueriesContext(connection) as asked:
        answers = tasks_enqueue_many(actor=alice, items=items)

    assert [type(one) for one in answers] == (
        [Task] + [NotFound] * (bulk.QUEUES - 1) + [BadInput] * 181 + [Task]
    )
    assert "the first 20" in answers[-2].fields["queue"]
    assert len(asked) < 60


def test_a_bulk_names_no_more_than_the_most_others(alice: User, example: Example) -> None:
    first = task_submit(actor=alice, spec=described(example.dev_queue.name))
    others = [str(first.pk), *(str(UUID(int=number)) for number in range(bulk.OTHERS))]
    bodies = [
        described(example.dev_queue.name, after=[{"task": one} for one in others[at : at + 50]])
        for at in range(1, bulk.OTHERS, 50)
    ]
    above = described(example.dev_queue.name, after=[{"task": others[0]}])

    with CaptureQueriesContext(connection) as asked:
        answers = tasks_enqueue_many(actor=alice, items=bodies)
    with pytest.raises(BadInput, match="after has 1001 different tasks in all: at most 1000"):
        tasks_enqueue_many(actor=alice, items=[*bodies, above])

    assert {one.fields["after.0.task"] for one in answers} == {"is no task that you see"}
    assert len(asked) < 60
    assert Task.objects.count() == 1


def test_no_name_is_looked_up_while_a_queue_is_locked(
    alice: User, example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = connection.savepoint_ids[:]
    looked_up: list[list[str]] = []
    plain = queues.queue_refs

    def found(*args: Any) -> Any:
        looked_up.append(connection.savepoint_ids[:])
        return plain(*args)

    monkeypatch.setattr(bulk, "queue_refs", found)
    tasks_enqueue_many(actor=alice, items=[described(example.dev_queue.name), described("nope")])

    assert looked_up == [outside]


def test_queues_are_locked_at_once_in_the_order_of_their_ids_however_they_are_called(
    root: User, example: Example
) -> None:
    first, second = Queue.objects.order_by("pk")[:2]
    given: list[str | int] = [second.name, str(first.pk), first.name, second.pk]

    with CaptureQueriesContext(connection) as asked:
        answers = tasks_enqueue_many(actor=root, items=[described(one) for one in given])

    assert [one.queue_id for one in answers] == [second.pk, first.pk, first.pk, second.pk]
    if connection.vendor == "postgresql":
        statements = [one["sql"] for one in asked]
        locks = [one for one in statements if "FOR NO KEY UPDATE" in one and "_queue" in one]
        assert len(locks) == 1
        assert 'ORDER BY "policies_queue"."id" ASC' in locks[0]


def test_each_item_is_answered_by_itself_whatever_it_calls_its_queue(
    alice: User, example: Example
) -> None:
    odd: list[str | int] = ["", "a\0b", "7" * 5000, "x" * 5000, 2**63, -1, 0, "\u00b2"]
    items = [described(example.dev_queue.name), *(described(one) for one in odd)]

    answers = tasks_enqueue_many(actor=alice, items=items)

    assert [type(one) for one in answers] == [Task] + [NotFound] * len(odd)


def test_a_permission_that_is_gone_by_the_time_of_the_lock_lets_nothing_in(
    alice: User, example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = queues.queues_lock

    def closed_meanwhile(*args: Any) -> Any:
        User.groups.through._default_manager.filter(user=alice).delete()
        return plain(*args)

    monkeypatch.setattr(bulk, "queues_lock", closed_meanwhile)
    answers = tasks_enqueue_many(actor=alice, items=[described(example.dev_queue.name)])

    assert [type(one) for one in answers] == [NotFound]
    assert not Task.objects.exists()


def test_a_queue_that_is_seen_and_not_open_is_distinguished_from_an_unknown_one(
    charlie: User, example: Example
) -> None:
    charlie.groups.add(Group.objects.get(name=QUEUE_ADMINS))
    items = [described(example.dev_queue.name), described("nope")]

    answers = tasks_enqueue_many(actor=charlie, items=items)

    assert [type(one) for one in answers] == [NotAllowed, NotFound]


def test_tasks_that_all_differ_ask_no_more_often_than_equal_ones(
    alice: User, example: Example
) -> None:
    name = example.dev_queue.name
    Queue.objects.filter(name=name).update(max_priority=1000)

    with CaptureQueriesContext(connection) as few:
        tasks_enqueue_many(actor=alice, items=[described(name), described(name, priority=1)])
    with CaptureQueriesContext(connection) as many:
        answers = tasks_enqueue_many(
            actor=alice, items=[described(name, priority=number) for number in range(50)]
        )

    assert {type(one) for one in answers} == {Task}
    assert len({one.task_group_id for one in answers}) == 50
    # The first of the two also sums up what the person stores.
    assert len(many) <= len(few)
