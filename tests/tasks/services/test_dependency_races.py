"""Tasks that end while others are enqueued after them: real threads on PostgreSQL."""

import threading

import pytest
from django.conf import settings
from django.db import connections, transaction

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.tasks.models import TaskDependency
from apps.tasks.services.enqueue.bulk import tasks_enqueue_many
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.services.stop import task_abort
from apps.tasks.task_spec import DependencySpec, TaskSpec
from tests.allocation.state import enqueue, states
from tests.people import Example
from tests.services.locks import waiting_for_locks
from tests.services.ports import wait_until

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"),
        reason="one writer at a time needs no lock",
    ),
]


@pytest.mark.parametrize("is_bulk", [False, True])
def test_a_task_that_ends_while_others_are_enqueued_after_it_reaches_them(
    example: Example, alice: User, *, is_bulk: bool
) -> None:
    (first,) = enqueue(alice, example.dev_queue)
    after = [DependencySpec(first.pk, "any")]
    spec = TaskSpec(name="next", queue=example.dev_queue.name, command=["true"], after=after)

    def abort() -> None:
        try:
            task_abort(actor=alice, task=first)
        finally:
            connections.close_all()

    ending = threading.Thread(target=abort)
    with transaction.atomic():
        if is_bulk:
            (task,) = tasks_enqueue_many(actor=alice, items=[spec])
        else:
            task = task_submit(actor=alice, spec=spec)
        ending.start()
        wait_until(lambda: waiting_for_locks() > 0, what="the end waits for the lock of the task")
        assert states([first]) == ["queued"]
    ending.join(30)

    assert states([first]) == ["aborted"]
    edge = TaskDependency.objects.get(task=task)
    assert (edge.outcome, edge.is_due) == ("met", True)
    run_pass()
    task.refresh_from_db()
    assert task.ineligible_code == ""
