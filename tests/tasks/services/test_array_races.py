"""Arrays that run again from several requests at once: real threads on PostgreSQL."""

import threading
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from django.db import DatabaseError, connections, transaction

from apps.accounts.models import User
from apps.core.errors import Conflict, RpmError
from apps.tasks.models import Task
from apps.tasks.services.enqueue.submission import task_enqueue, task_run_again
from apps.tasks.services.stop import task_abort, task_dequeue
from tests.people import Example
from tests.services.locks import waiting_for_locks
from tests.services.ports import wait_until
from tests.tasks.services.array_steps import array_of

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def array(example: Example, root: User) -> Task:
    """An array that was aborted, of a user who may enqueue in both queues."""
    return task_abort(actor=root, task=array_of(root, example, 2))


def all_behind(row: Task, works: Sequence[Callable[[], Task]]) -> list[Task | Exception]:
    """What becomes of requests that wait for the lock of this row, in this order, until it ends."""
    results: list[Task | Exception] = []

    def run(work: Callable[[], Task]) -> None:
        try:
            results.append(work())
        except (RpmError, DatabaseError) as error:
            results.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    with transaction.atomic():
        Task.objects.select_for_update(no_key=True).get(pk=row.pk)
        for count, thread in enumerate(threads, start=1):
            thread.start()
            wait_until(partial(is_count_waiting, count), what=f"{count} requests wait")
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return results


def is_count_waiting(count: int) -> bool:
    return waiting_for_locks() == count


def check_one_runs(results: list[Task | Exception]) -> None:
    (refused,) = [one for one in results if not isinstance(one, Task)]
    assert isinstance(refused, Conflict), refused
    assert "runs again already" in str(refused)
    assert Task.objects.filter(state="queued").count() == 1


def test_an_array_runs_again_once_in_all_queues(example: Example, root: User, array: Task) -> None:
    def again(queue: str) -> Callable[[], Task]:
        return lambda: task_run_again(actor=root, task=array, queue=queue)

    check_one_runs(
        all_behind(array, [again(example.dev_queue.name), again(example.research_queue.name)])
    )


@pytest.mark.parametrize("is_draft", [False, True])
def test_a_draft_of_an_array_is_enqueued_next_to_no_other(
    example: Example, root: User, array: Task, *, is_draft: bool
) -> None:
    draft, other = (
        task_dequeue(actor=root, task=task_run_again(actor=root, task=array)) for _ in range(2)
    )

    def first() -> Task:
        if is_draft:
            return task_enqueue(actor=root, task=other, queue=example.dev_queue.name)
        return task_run_again(actor=root, task=array, queue=example.dev_queue.name)

    def second() -> Task:
        return task_enqueue(actor=root, task=draft, queue=example.research_queue.name)

    check_one_runs(all_behind(array, [first, second]))
