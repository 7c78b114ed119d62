"""What the cards of queues say of a new task, compared with what a pass then does."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.whatif.queue_starts import QueueStart, queue_starts
from apps.policies.models import Queue
from apps.tasks.models import Attempt, Task
from apps.tasks.task_spec import spec_of
from tests.allocation.state import apply, begin, decided, enqueue, make_node
from tests.people import Example

pytestmark = pytest.mark.django_db


def asked(actor: User, queues: Sequence[Queue], **fields: Any) -> tuple[QueueStart, ...]:
    spec = spec_of({"name": "new", "command": ["true"], **fields})
    return queue_starts(actor=actor, queues=queues, spec=spec)


def test_it_starts_at_once_where_there_is_capacity_for_its_amounts(
    example: Example, alice: User
) -> None:
    make_node(example.h100, name="h1")

    (fits,) = asked(alice, [example.dev_queue])
    (fixed,) = asked(alice, [example.dev_queue], request={"gpu": "2"})

    assert (fits.starts_now, fits.count, fits.reason) == (True, 2, None)
    assert fixed.problem == "request is fixed by the profile of this queue: leave it out."
    assert not Task.objects.exists()


def test_behind_equal_tasks_it_is_expected_after_all_of_them(example: Example, alice: User) -> None:
    make_node(example.h100, name="h1")
    enqueue(alice, example.dev_queue, 4, time_limit_s=3600)
    apply(*decided())
    begin(*Attempt.objects.all())
    before = timezone.now()

    spec = {"time_limit_s": 3600}
    (later,) = asked(alice, [example.dev_queue], **spec)
    (first,) = asked(alice, [example.dev_queue], **spec, priority=-1)

    assert later.count == 0
    assert later.reason is not None
    assert later.expected is not None
    assert later.expected.about is not None
    # Two run and two wait, two at a time: the middle of two lengths is about an hour.
    assert later.expected.about > before + timedelta(minutes=20)
    # Without equals it is a group of its own.
    assert first.expected is not None
    assert first.expected.about is not None
    assert not later.problem
