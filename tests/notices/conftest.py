"""Tasks, and what happens to them."""

from collections.abc import Callable
from functools import partial

import pytest

from apps.accounts.models import User
from apps.events.models import Event
from apps.events.services import NewEvent, events_record
from apps.notices.services import notice_mail, notice_maker
from apps.tasks.models import Task
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.task_spec import TaskSpec
from tests.people import Example

# However slow the machine is: how much of it a run does is not what these tests are about.
notices_make = partial(notice_maker.notices_make, run_s=3600)
notices_mail = partial(notice_mail.notices_mail, run_s=3600)

Submit = Callable[..., Task]
Happen = Callable[..., Event]


@pytest.fixture
def submit(example: Example) -> Submit:
    """Enqueue a task in Dev's queue."""

    def do(owner: User, name: str = "train", **changes: object) -> Task:
        values = {"queue": example.dev_queue.name, "command": ["train"]}
        return task_submit(actor=owner, spec=TaskSpec(name=name, **values | changes))  # type: ignore[arg-type]  # checked by the struct

    return do


@pytest.fixture
def happen(db: None) -> Happen:
    """Record an event of a task, as its transition does."""

    def do(task: Task, kind: str, **data: object) -> Event:
        assert task.queue is not None
        queue = task.queue
        events_record([NewEvent(kind, "task", task.pk, queue.pk, queue.policy_id, data=data)])
        return Event.objects.latest("pk")

    return do


@pytest.fixture
def confirmed(alice: User) -> User:
    """Alice with an address that mail may go to."""
    User.objects.filter(pk=alice.pk).update(email="alice@example.org")
    alice.refresh_from_db()
    return alice
