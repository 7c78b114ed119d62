"""What the page of a waiting task offers its readers, and what a failed one shows at once."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.configuration.services.queues import profile_connect
from apps.dashboard.cards.start_offers import start_offers
from apps.dashboard.render import card_render
from apps.policies.models import Profile, Queue
from apps.policies.services import live_version_raise
from apps.tasks.lifecycle.states import AttemptState, TaskState
from apps.tasks.models import Attempt, Member, Task
from apps.tasks.services.members.logs import log_append
from tests.allocation.state import begin, enqueue, make_node
from tests.dashboard.conftest import ClientFor
from tests.dashboard.page_reader import folded
from tests.people import Example

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def smaller(example: Example, root: User) -> Queue:
    """A queue of Dev for tasks of two GPUs, which are free on a node of their own."""
    make_node(example.bare_metal, name="b1", gpus=4)
    make_node(example.h100, name="h1", gpus=2)
    profile = Profile.objects.get(name="2xGPU")
    return profile_connect(actor=root, policy=example.dev, profile=profile)


@pytest.fixture
def waiting(example: Example, alice: User, smaller: Queue) -> Task:
    """The second of two tasks of four GPUs, of which one place is there."""
    tasks = enqueue(alice, example.dev_queue, 2, time_limit_s=3600)
    run_pass()
    begin(*Attempt.objects.all())
    run_pass()
    return tasks[1]


def test_a_move_that_starts_it_now_is_one_press_of_its_owner(
    waiting: Task, smaller: Queue, alice: User, bob: User, client_for: ClientFor
) -> None:
    path = reverse("task_expected_start", args=[waiting.pk])
    hers = folded(client_for(alice).get(path).content.decode())
    his = folded(client_for(bob).get(path).content.decode())

    assert "Starts about" in hers
    assert "Starts about" in his
    assert f"Move it to {smaller.name}" in hers
    assert "It would start now." in hers
    assert "What you can do" not in his

    sent = {"queue": str(smaller.pk), "from": str(waiting.queue_id)}
    client_for(alice).post(reverse("task_change_queue", args=[waiting.pk]), sent)
    run_pass()
    waiting.refresh_from_db()
    assert (waiting.queue_id, waiting.state) == (smaller.pk, TaskState.ALLOCATED)


def test_a_smaller_request_that_fits_is_offered_to_the_owner_as_an_edit(
    example: Example, waiting: Task, alice: User, client_for: ClientFor
) -> None:
    Profile.objects.filter(pk=example.dev_queue.profile_id).update(
        is_dynamic=True, request_min={"gpu": "1"}, request_max={"gpu": "4"}
    )
    live_version_raise()
    Task.objects.filter(pk=waiting.pk).update(request={"gpu": "4"})
    waiting.refresh_from_db()
    client = client_for(alice)
    context = client.get(reverse("task_expected_start", args=[waiting.pk])).context

    offers = start_offers(alice, waiting, context["expected"])
    answer = client.post(reverse("task_dequeue", args=[waiting.pk]), {"then": "edit"})

    assert ("edit", "Ask for 2 GPUs") in {(one.kind, one.title) for one in offers}
    assert len(offers) <= 3
    assert answer["Location"] == reverse("task_edit", args=[waiting.pk])


def test_a_failed_task_shows_its_last_lines_to_those_who_may_read_them(
    example: Example, alice: User, bob: User
) -> None:
    make_node(example.bare_metal, name="b1")
    (task,) = enqueue(alice, example.dev_queue)
    run_pass()
    begin(*Attempt.objects.all())
    member = Member.objects.get()
    log_append(member_id=member.pk, offset=0, content=b"one\nout of memory\n", at=timezone.now())
    at = timezone.now() + timedelta(seconds=1)
    Attempt.objects.update(state=AttemptState.FINISHED, ended_at=at, exit_code=1)
    Task.objects.update(state=TaskState.FAILED, ended_at=at, exit_code=1)

    hers, his = (card_render("task_summary", str(task.pk), one) for one in (alice, bob))

    assert hers is not None
    assert his is not None
    assert 'aria-label="Last lines of the log"' in hers.html
    assert "out of memory" in hers.html
    assert "out of memory" not in his.html
