"""What a user could start right now, compared with what a pass then does."""

import pytest

from apps.accounts.models import User
from apps.allocation.whatif.start_counts import MOST_TASKS, StartCount, start_counts
from apps.configuration.services.policies import policy_change
from apps.policies.models import Policy, Pool, Queue
from apps.tasks.models import Attempt, Task
from tests.allocation.state import apply, begin, decided, enqueue, make_node, states
from tests.people import Example

pytestmark = pytest.mark.django_db


def asked(actor: User, queue: Queue) -> StartCount:
    """The answer for one queue."""
    return start_counts(actor=actor, queues=[queue])[0]


def test_as_many_start_as_were_said_to_and_the_next_one_waits(
    example: Example, alice: User
) -> None:
    make_node(example.h100, name="h1")

    said = asked(alice, example.dev_queue)
    tasks = enqueue(alice, example.dev_queue, said.count + 1)
    apply(*decided())

    assert (said.count, said.after) == (2, 0)
    assert states(tasks) == ["allocated", "allocated", "queued"]


def test_asking_leaves_nothing_behind(example: Example, alice: User) -> None:
    make_node(example.h100, name="h1")

    asked(alice, example.dev_queue)

    assert not Task.objects.exists()
    assert not Attempt.objects.exists()


def test_the_limit_per_person_is_named_before_that_of_the_policy(
    example: Example, root: User, alice: User, bob: User
) -> None:
    make_node(example.h100, name="h1")
    make_node(example.bare_metal, name="b1")
    policy_change(actor=root, policy=example.dev, changes={"user_limit": {"gpu": 8}})
    enqueue(alice, example.dev_queue)
    apply(*decided())

    hers, his = asked(alice, example.dev_queue), asked(bob, example.dev_queue)

    assert (hers.count, hers.allowed) == (1, 1)
    assert (his.count, his.allowed) == (2, 2)
    assert hers.limit == his.limit == "the limit of 8 GPUs per person"


def test_a_reservation_that_others_use_is_counted_once_they_have_stopped(
    example: Example, alice: User, charlie: User
) -> None:
    make_node(example.h100, name="h1")
    make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue, 4)
    apply(*decided())
    begin(*Attempt.objects.all())

    said = asked(charlie, example.research_queue)

    assert (said.count, said.after) == (0, 2)
    assert said.reason is not None


def test_who_waits_already_comes_first(example: Example, alice: User, bob: User) -> None:
    make_node(example.h100, name="h1")
    enqueue(alice, example.dev_queue)

    assert asked(bob, example.dev_queue).count == 1


def test_without_limits_it_stops_counting_somewhere(
    example: Example, root: User, alice: User
) -> None:
    Pool.objects.filter(pk=example.h100.pk).update(capacity={"gpu": "1000"})
    for number in range(34):
        make_node(example.h100, name=f"h{number}")
    policy_change(actor=root, policy=example.dev, changes={"limit": {}, "reserved": {}})

    said = asked(alice, example.dev_queue)

    assert said.is_more
    assert (said.count, said.limit) == (MOST_TASKS, "")


def test_a_paused_policy_starts_nothing_and_says_so(example: Example, alice: User) -> None:
    make_node(example.h100, name="h1")
    Policy.objects.filter(pk=example.dev.pk).update(paused_at="2026-01-01T00:00:00Z")

    said = asked(alice, example.dev_queue)

    assert said.count == 0
    assert said.reason is not None
    assert said.reason.code == "paused"
