"""When a waiting task will probably start, on the API and on its page."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.allocation import forecast
from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.explanation import start_estimates
from apps.allocation.services import run_pass
from apps.configuration.services.pools import policy_pause
from apps.configuration.services.queues import profile_connect
from apps.policies.models import Profile
from apps.tasks.lifecycle.states import AttemptState, TaskState
from apps.tasks.models import Attempt, Task
from tests.allocation.state import enqueue, make_node
from tests.people import Example

As = Callable[[User], APIClient]
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def explained(api_as: As, user: User, task: Task) -> dict[str, Any]:
    answer = api_as(user).get(f"/api/v1/tasks/{task.pk}/explain/")
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def page(api_as: As, user: User, task: Task) -> str:
    return " ".join(api_as(user).get(f"/tasks/{task.pk}/expected-start/").content.decode().split())


def start_all(ran: timedelta) -> None:
    """Let everything that is placed have run for so long already."""
    at = timezone.now() - ran
    for state in (AttemptState.STARTING, AttemptState.RUNNING):
        Attempt.objects.exclude(state=AttemptState.FINISHED).update(state=state, started_at=at)
    Task.objects.filter(state=TaskState.ALLOCATED).update(state=TaskState.RUNNING)


def ended_before(example: Example, owner: User, *, hours: int) -> None:
    """Thirty tasks of Dev's queue ran between one and so many hours."""
    now = timezone.now()
    for task, number in zip(enqueue(owner, example.dev_queue, 30), range(30), strict=True):
        length = timedelta(hours=1) + timedelta(hours=hours - 1) * number / 29
        begun = now - timedelta(days=3, minutes=number)
        Attempt.objects.create(
            task=task,
            generation=1,
            state=AttemptState.FINISHED,
            queue=example.dev_queue,
            policy=example.dev,
            pool=example.bare_metal,
            request={"gpu": 4000},
            allocated_at=begun,
            started_at=begun,
            ended_at=begun + length,
        )
        Task.objects.filter(pk=task.pk).update(state=TaskState.ABORTED)


@pytest.fixture
def full(example: Example, alice: User) -> list[Task]:
    """One place for a task of an hour at most, which has run half of it; three more wait."""
    make_node(example.bare_metal, name="b1", gpus=4)
    tasks = enqueue(alice, example.dev_queue, 4, time_limit_s=3600)
    run_pass()
    start_all(timedelta(minutes=30))
    run_pass()
    return tasks


def test_time_limits_bound_the_start(api_as: As, alice: User, full: list[Task]) -> None:
    answer = explained(api_as, alice, full[1])

    expected, now = answer["expected_start"], timezone.now()
    assert (expected["basis"], expected["is_estimate"]) == ("time_limit", True)
    assert expected["sentence"] == "Estimated from the time limits of the tasks before it."
    earliest, latest = (datetime.fromisoformat(expected[one]) for one in ("earliest", "latest"))
    assert now < earliest < latest
    # The one that runs has half an hour left at most; the interval is wider than that by design.
    assert earliest < now + timedelta(minutes=30)
    assert latest < now + timedelta(hours=1)
    assert answer["no_estimate"] == ""


def test_the_history_of_another_queue_is_not_called_its_own(
    api_as: As, alice: User, charlie: User, example: Example
) -> None:
    ended_before(example, alice, hours=3)
    make_node(example.bare_metal, name="b1", gpus=4)
    enqueue(alice, example.dev_queue, 1)
    (theirs,) = enqueue(charlie, example.research_queue, 1, time_limit_s=3600)
    run_pass()
    start_all(timedelta(minutes=1))
    run_pass()

    expected = explained(api_as, charlie, theirs)["expected_start"]

    assert expected["basis"] == "queue"
    assert expected["sentence"] == "Estimated from earlier tasks of the queues before it."


def test_whoever_stands_behind_starts_later(api_as: As, alice: User, full: list[Task]) -> None:
    starts = [explained(api_as, alice, task)["expected_start"]["earliest"] for task in full[1:]]

    assert starts == sorted(starts)
    assert len(set(starts)) == 3


def test_the_history_of_the_queue_is_the_basis_where_there_are_no_limits(
    api_as: As, alice: User, example: Example
) -> None:
    ended_before(example, alice, hours=3)
    make_node(example.bare_metal, name="b1", gpus=4)
    tasks = enqueue(alice, example.dev_queue, 2)
    run_pass()
    start_all(timedelta(minutes=1))
    run_pass()

    expected = explained(api_as, alice, tasks[1])["expected_start"]

    assert expected["basis"] == "queue"
    assert expected["sentence"] == "Estimated from 30 earlier tasks of this queue."
    latest = datetime.fromisoformat(expected["latest"])
    assert timedelta(hours=1) < latest - timezone.now() < timedelta(hours=6)


def test_with_nothing_to_go_by_there_is_no_estimate_and_a_reason(
    api_as: As, alice: User, example: Example
) -> None:
    make_node(example.bare_metal, name="b1", gpus=4)
    tasks = enqueue(alice, example.dev_queue, 2)
    run_pass()
    start_all(timedelta(minutes=1))
    run_pass()

    answer = explained(api_as, alice, tasks[1])

    assert answer["expected_start"] is None
    assert answer["no_estimate"].startswith("No estimate: too few tasks have ended")
    assert "too few tasks have ended" in page(api_as, alice, tasks[1])


def test_what_only_people_can_change_has_no_estimate(
    api_as: As, alice: User, root: User, example: Example, full: list[Task]
) -> None:
    policy_pause(actor=root, policy=example.dev, reason="Audit.")
    run_pass()

    answer = explained(api_as, alice, full[1])

    assert (answer["code"], answer["expected_start"]) == ("paused", None)
    assert answer["no_estimate"] == "No start is in sight: see why it waits."


def test_a_task_that_does_not_wait_has_neither(api_as: As, alice: User, full: list[Task]) -> None:
    answer = explained(api_as, alice, full[0])

    assert (answer["expected_start"], answer["no_estimate"]) == (None, "")
    assert page(api_as, alice, full[0]) == ""


def test_the_page_says_it_is_an_estimate_and_what_it_goes_by(
    api_as: As, alice: User, charlie: User, full: list[Task]
) -> None:
    fragment = page(api_as, alice, full[1])

    assert "Estimate" in fragment
    assert re.search("Probably in [0-9]+ (s|min) to [0-9]+ min: between <time", fragment)
    assert (
        "Estimated from the time limits of the tasks before it. Four of five such tasks" in fragment
    )
    assert f'hx-get="/tasks/{full[1].pk}/expected-start/"' in (
        api_as(alice).get(f"/tasks/{full[1].pk}/").content.decode()
    )
    assert api_as(charlie).get(f"/tasks/{full[1].pk}/expected-start/").status_code == 404


def test_where_it_would_take_too_long_it_is_not_begun(
    api_as: As, alice: User, full: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_estimates, "MOST_ROWS", 100)
    monkeypatch.setattr(start_estimates, "estimate", None)

    answer = explained(api_as, alice, full[1])

    assert answer["expected_start"] is None
    assert answer["no_estimate"] == "No estimate: too many tasks are queued or running."


def test_work_of_other_pools_is_left_out_and_that_of_the_own_ones_is_not(
    api_as: As,
    alice: User,
    charlie: User,
    root: User,
    example: Example,
    full: list[Task],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares = profile_connect(
        actor=root, policy=example.research, profile=Profile.objects.get(name="8xGPU")
    )
    Profile.objects.get(name="2xGPU").links.all().delete()
    other = profile_connect(
        actor=root, policy=example.research, profile=Profile.objects.get(name="2xGPU")
    )
    for queue in (shares, other):
        enqueue(charlie, queue, 1)
    seen: list[set[object]] = []
    estimate = forecast.expected_start

    def listening(snapshot: Snapshot, **rest: Any) -> Any:
        seen.append({run.queue for run in snapshot.queued_groups})
        return estimate(snapshot, **rest)

    monkeypatch.setattr(start_estimates, "estimate", listening)
    explained(api_as, alice, full[1])

    assert seen == [{example.dev_queue.pk, shares.pk}]


def test_it_is_worked_out_once_a_minute_at_most(
    api_as: As, alice: User, full: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = explained(api_as, alice, full[1])["expected_start"]
    monkeypatch.setattr(start_estimates, "estimate", None)

    assert explained(api_as, alice, full[1])["expected_start"] == first
    with pytest.raises(TypeError):
        explained(api_as, alice, full[2])
