"""The database refuses what the table of edges does not list, and nothing else."""

from itertools import product

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.tasks.lifecycle.states import AttemptState, TaskState
from apps.tasks.lifecycle.transitions import ATTEMPT_EDGES, TASK_EDGES
from apps.tasks.models import Attempt, Task, TaskGroup
from tests.people import Example

pytestmark = pytest.mark.django_db


def test_every_state_has_its_edges() -> None:
    assert set(TASK_EDGES) == set(TaskState.values)
    assert set(ATTEMPT_EDGES) == set(AttemptState.values)


@pytest.fixture
def task(alice: User, example: Example) -> Task:
    task_group = TaskGroup.objects.create(queue=example.dev_queue, shape="x")
    now = timezone.now()
    return Task.objects.create(
        owner=alice,
        name="t",
        queue=example.dev_queue,
        task_group=task_group,
        created_at=now,
        changed_at=now,
        submitted_at=now,
    )


def test_the_database_takes_exactly_the_edges_of_tasks(task: Task) -> None:
    taken = set()
    for before, after in product(TaskState.values, repeat=2):
        fresh = Task.objects.create(
            owner=task.owner,
            name="t",
            queue=task.queue,
            task_group=task.task_group,
            state=before,
            created_at=task.created_at,
            changed_at=task.changed_at,
            submitted_at=task.submitted_at,
        )
        try:
            with transaction.atomic():
                Task.objects.filter(pk=fresh.pk).update(state=after)
        except DatabaseError:
            continue
        taken.add((before, after))

    wanted = {(before, after) for before, others in TASK_EDGES.items() for after in others}
    assert taken == wanted | {(state, state) for state in TaskState.values}


def test_the_database_takes_exactly_the_edges_of_attempts(task: Task, example: Example) -> None:
    taken = set()
    for number, (before, after) in enumerate(product(AttemptState.values, repeat=2)):
        Attempt.objects.all().delete()
        attempt = Attempt.objects.create(
            task=task,
            generation=number,
            state=before,
            queue=example.dev_queue,
            policy=example.dev,
            pool=example.h100,
            allocated_at=timezone.now(),
        )
        try:
            with transaction.atomic():
                Attempt.objects.filter(pk=attempt.pk).update(state=after)
        except DatabaseError:
            continue
        taken.add((before, after))

    wanted = {(before, after) for before, others in ATTEMPT_EDGES.items() for after in others}
    assert taken == wanted | {(state, state) for state in AttemptState.values}
