"""One action on the tasks that are selected in the list."""

import re
from typing import Any

import pytest
from django.urls import reverse

from apps.accounts.models import User
from apps.configuration.services.queues import profile_connect
from apps.dashboard.forms_bulk import VERBS
from apps.dashboard.selectors import tasks as selectors
from apps.policies.models import Profile
from apps.tasks.models import Task
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.dashboard.page_reader import text
from tests.people import Example

pytestmark = pytest.mark.django_db

PATH = reverse("task_bulk")


def words(answer: object) -> str:
    return " ".join(text(answer).split())


def state_of(task: Task) -> str:
    return Task.objects.get(pk=task.pk).state


def test_selected_tasks_are_aborted_after_one_question_with_their_number(
    alice: User, submit: Submit, client_for: ClientFor
) -> None:
    tasks = [submit(alice, f"t{number}") for number in range(3)]
    client = client_for(alice)
    given: dict[str, Any] = {"verb": "abort", "task": [task.pk for task in tasks[:2]]}

    asked = client.get(PATH, given)
    assert {state_of(task) for task in tasks} == {"queued"}
    done = client.post(PATH, given)

    assert "Abort 2 tasks?" in words(asked)
    assert "2 tasks changed" in words(done)
    assert [state_of(task) for task in tasks] == ["aborted", "aborted", "queued"]


def test_each_task_has_its_own_result(
    alice: User, bob: User, submit: Submit, client_for: ClientFor
) -> None:
    mine, theirs = submit(alice, "mine"), submit(bob, "theirs")

    done = client_for(alice).post(PATH, {"verb": "abort", "task": [mine.pk, theirs.pk]})

    assert "1 task changed, 1 not" in words(done)
    assert re.search(r"mine Aborted.*theirs Not done", words(done))
    assert (state_of(mine), state_of(theirs)) == ("aborted", "queued")


def test_tasks_are_moved_given_a_priority_and_run_again(
    alice: User, root: User, example: Example, submit: Submit, client_for: ClientFor
) -> None:
    two = Profile.objects.get(name="2xGPU")
    queue = profile_connect(actor=root, policy=example.dev, profile=two)
    task, client = submit(alice, "t"), client_for(alice)
    given: dict[str, Any] = {"task": [task.pk]}

    asked = client.get(PATH, {**given, "verb": "change-queue"})
    client.post(PATH, {**given, "verb": "change-queue", "queue": str(queue.pk)})
    wrong = client.post(PATH, {**given, "verb": "priority", "priority": "5000"})
    client.post(PATH, {**given, "verb": "priority", "priority": "-3"})
    task.refresh_from_db()
    moved = (task.queue, task.priority)
    client.post(PATH, {**given, "verb": "abort"})
    client.post(PATH, {**given, "verb": "run-again"})

    assert queue.name in asked.content.decode()
    assert wrong.status_code == 400
    assert "Enter a whole number" in text(wrong)
    assert moved == (queue, -3)
    assert state_of(task) == "queued"


def test_what_the_reader_does_not_see_is_not_named_and_nothing_selected_is_said(
    alice: User, charlie: User, submit: Submit, client_for: ClientFor
) -> None:
    task, own = submit(alice, "secret"), submit(alice, "other")
    given: dict[str, Any] = {"verb": "abort", "task": [task.pk, "nonsense"]}

    hidden = client_for(charlie).get(PATH, given, follow=True)
    refused = client_for(charlie).post(PATH, given, follow=True)

    assert "secret" not in hidden.content.decode()
    assert "Select tasks in the list first." in text(hidden)
    assert "Select tasks in the list first." in text(refused)
    assert (state_of(task), state_of(own)) == ("queued", "queued")
    assert client_for(alice).get(PATH, {"verb": "delete"}).status_code == 404


def test_a_selection_is_bounded(
    alice: User, submit: Submit, client_for: ClientFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selectors, "MOST_SELECTED", 2)
    keys = [submit(alice, f"t{number}").pk for number in range(3)]

    given: dict[str, Any] = {"verb": "abort", "task": keys}
    asked = client_for(alice).get(PATH, given)

    assert "Abort 2 tasks?" in words(asked)


def test_rows_can_be_selected_and_the_list_offers_every_action(
    alice: User, example: Example, submit: Submit, run_in: RunIn, client_for: ClientFor
) -> None:
    task = submit(alice, "t")
    run_in(task, example.h100)

    page = client_for(alice).get(reverse("task_list")).content.decode()

    assert f'value="{task.pk}" form="task-bulk"' in page
    assert [verb for verb in VERBS if f'name="verb" value="{verb}"' not in page] == []
