"""The bytes of a user's tasks are bounded, and ended tasks are removed first."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Conflict
from apps.tasks.models import Task
from apps.tasks.services.enqueue import storage
from apps.tasks.services.enqueue.bulk import tasks_enqueue_many
from apps.tasks.services.enqueue.storage import stored_bytes
from apps.tasks.services.enqueue.submission import (
    task_change,
    task_create,
    task_enqueue,
    task_submit,
)
from apps.tasks.services.retention import expired_remove, retention_of
from apps.tasks.sizes import TASK_BYTES, spec_bytes
from apps.tasks.task_spec import spec_of
from tests.people import Example

pytestmark = pytest.mark.django_db

KB = 1000
MOST = 100 * KB


@pytest.fixture(autouse=True)
def bound(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.RPM_TASK_BYTES_PER_PERSON = MOST
    monkeypatch.setattr(storage, "REFUSED_S", 0)
    storage._stored.clear()
    yield
    storage._stored.clear()


def described(size: int, **values: object) -> dict[str, Any]:
    """A description that counts for about `size` bytes."""
    return {"name": "t", "command": ["true", "x" * (size - TASK_BYTES)], **values}


def task_of(owner: User, *, size: int, state: str, days_ago: float = 2) -> Task:
    at = timezone.now() - timedelta(days=days_ago)
    return Task.objects.create(
        owner=owner,
        name="t",
        size_bytes=size,
        state=state,
        created_at=at,
        changed_at=at,
        ended_at=at,
    )


def test_the_bytes_of_the_tasks_of_one_person_are_bounded(
    alice: User, bob: User, example: Example
) -> None:
    draft = spec_of(described(40 * KB))
    waits = spec_of(described(40 * KB, queue=example.dev_queue.name))
    first = task_create(actor=alice, spec=draft)
    task_submit(actor=alice, spec=waits)

    with pytest.raises(Conflict, match="may take 100000 bytes at most, and would take"):
        task_create(actor=alice, spec=draft)
    with pytest.raises(Conflict, match="remove drafts"):
        task_submit(actor=alice, spec=waits)
    many = tasks_enqueue_many(actor=alice, items=[draft, waits, draft])

    assert [type(one) for one in many] == [Conflict] * 3
    assert stored_bytes(alice.pk) == spec_bytes(draft) + spec_bytes(waits)
    assert task_create(actor=bob, spec=draft).state == "draft"
    # What is stored already takes no more in a queue.
    task_enqueue(actor=alice, task=first, queue=example.dev_queue.name)
    Task.objects.filter(pk=first.pk).delete()
    assert task_create(actor=alice, spec=draft).state == "draft"


def test_a_draft_grows_up_to_the_bound_and_can_be_made_smaller_above_it(
    alice: User, settings: Any
) -> None:
    small = task_create(actor=alice, spec=spec_of(described(2 * KB)))
    grown = task_change(actor=alice, task=small, changes={"command": ["x" * 90 * KB]})

    with pytest.raises(Conflict, match="at most"):
        task_change(actor=alice, task=grown, changes={"command": ["x" * 110 * KB]})

    settings.RPM_TASK_BYTES_PER_PERSON = 50 * KB
    task_change(actor=alice, task=grown, changes={"command": ["x" * 80 * KB]})
    assert 80 * KB < stored_bytes(alice.pk) < 82 * KB


def test_without_a_bound_nothing_is_booked_up(alice: User, settings: Any) -> None:
    settings.RPM_TASK_BYTES_PER_PERSON = 0

    for _ in range(3):
        task_create(actor=alice, spec=spec_of(described(90 * KB)))

    assert not storage._stored


def test_a_process_sums_up_once_for_a_hundredth_of_the_bound(alice: User, settings: Any) -> None:
    settings.RPM_TASK_BYTES_PER_PERSON = 100 * MOST
    one = spec_of(described(10 * KB))

    task_create(actor=alice, spec=one)

    due = [storage.storage_is_due(alice.pk, 10 * KB) for _ in range(12)]
    # The first of ten was let in with the sum.
    assert due == [False] * 8 + [True] * 4


def test_who_asks_again_above_the_bound_is_answered_by_the_last_sum(
    alice: User, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    monkeypatch.setattr(storage, "REFUSED_S", 60)
    task_of(alice, size=MOST, state="draft")

    with django_assert_num_queries(1):
        for _ in range(5):
            with pytest.raises(Conflict):
                storage.check_may_store(alice.pk, KB)


def test_the_oldest_ended_tasks_of_who_has_much_go_first(alice: User, bob: User) -> None:
    kept = retention_of(logs_days=0, tasks_days=730, task_bytes=MOST)
    ended = [task_of(alice, size=20 * KB, state="completed") for _ in range(4)]
    waiting = task_of(alice, size=30 * KB, state="draft")
    older = task_of(alice, size=0, state="completed")
    other = task_of(bob, size=45 * KB, state="failed")

    removed = expired_remove(kept)

    # 80 KB of ended ones: two go, until no more than 50 KB are left.
    assert (removed.tasks, removed.is_over) == (2, True)
    left = {*ended[2:], waiting, older, other}
    assert set(Task.objects.all()) == left
    assert expired_remove(kept).tasks == 0


def test_what_ended_a_moment_ago_stays_however_long_it_ran(alice: User) -> None:
    long = task_of(alice, size=30 * KB, state="completed", days_ago=0.1)
    short = [task_of(alice, size=30 * KB, state="completed", days_ago=3) for _ in range(3)]

    removed = expired_remove(retention_of(logs_days=0, tasks_days=730, task_bytes=MOST))

    assert removed.tasks == 3
    assert list(Task.objects.all()) == [long]
    assert short


def test_what_is_not_ended_stays_above_the_bound(alice: User) -> None:
    for _ in range(3):
        task_of(alice, size=80 * KB, state="draft")
    task_of(alice, size=40 * KB, state="completed")

    assert expired_remove(retention_of(logs_days=0, tasks_days=730, task_bytes=MOST)).tasks == 0


def test_what_is_kept_for_ever_stays_above_the_bound(alice: User) -> None:
    for _ in range(3):
        task_of(alice, size=80 * KB, state="completed")

    for_ever = expired_remove(retention_of(logs_days=0, tasks_days=0, task_bytes=MOST))
    unbounded = expired_remove(retention_of(logs_days=0, tasks_days=730))

    assert (for_ever.tasks, unbounded.tasks) == (0, 0)
