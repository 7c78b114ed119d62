"""Browsers without a browser: Django's client, signed in."""

from collections.abc import Callable
from datetime import datetime

import pytest
from django.test import Client
from django.utils import timezone

from apps.accounts.models import User
from apps.policies.models import Pool
from apps.tasks.lifecycle.states import AttemptState, TaskState
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.services.enqueue.submission import task_submit
from apps.tasks.task_spec import TaskSpec
from tests.people import Example

ClientFor = Callable[[User], Client]
Submit = Callable[..., Task]
RunIn = Callable[..., Attempt]


@pytest.fixture
def client_for() -> ClientFor:
    """A client that is signed in as somebody."""

    def sign_in(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return sign_in


@pytest.fixture
def submit(example: Example) -> Submit:
    """Enqueue a task of 4 GPUs in Dev's queue."""

    def do(owner: User, name: str, **changes: object) -> Task:
        values = {"queue": example.dev_queue.name, "command": ["train", "--secret-option"]}
        return task_submit(actor=owner, spec=TaskSpec(name=name, **values | changes))  # type: ignore[arg-type]  # checked by the struct

    return do


@pytest.fixture
def run_in() -> RunIn:
    """Let a waiting task run, as a pass and a node would have it."""

    def do(task: Task, pool: Pool, *, since: datetime | None = None, gpu: int = 4000) -> Attempt:
        at = since or timezone.now()
        Task.objects.filter(pk=task.pk).update(state=TaskState.ALLOCATED, generation=1)
        Task.objects.filter(pk=task.pk).update(state=TaskState.RUNNING)
        assert task.queue is not None
        attempt = Attempt.objects.create(
            task=task,
            generation=1,
            state=AttemptState.RUNNING,
            queue=task.queue,
            policy=task.queue.policy,
            pool=pool,
            request={"gpu": gpu},
            allocated_at=at,
            started_at=at,
        )
        Member.objects.create(attempt=attempt, pool=pool, amounts={"gpu": gpu})
        return attempt

    return do
