"""The page of one task: what it would lose, and how it comes back into its line."""

import re
from datetime import timedelta

import pytest
from django.conf import LazySettings
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import User
from apps.dashboard.cards.tasks import (
    TaskSummaryCard,
    TaskTimeline,
    load_task_summary,
    load_task_timeline,
)
from apps.events.services import event_record
from apps.policies.models import Queue
from apps.tasks.lifecycle.states import AttemptState, TaskState
from apps.tasks.models import Attempt, Task
from apps.tasks.services.stop import task_abort, task_dequeue
from tests.allocation.state import change_content
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.dashboard.page_reader import errors_at
from tests.dashboard.test_pages import text
from tests.page_words import words_on
from tests.people import Example


def test_a_running_task_tells_what_it_would_lose_and_until_when_it_is_safe(
    example: Example, alice: User, submit: Submit, run_in: RunIn, client_for: ClientFor
) -> None:
    now = timezone.now()
    Queue.objects.filter(pk=example.dev_queue.pk).update(min_runtime_s=7200)
    task = submit(alice, "train", time_limit_s=86_400)
    attempt = run_in(task, example.h100, since=now - timedelta(hours=1))

    risk = shown(client_for(alice), task)
    assert risk["Ends at the latest"] != ""
    assert risk["Last checkpoint"] == "none reported"
    assert risk["Can be preempted"] == "not by another team"
    assert risk["Would lose"] == "1 h 00 min of work"

    Attempt.objects.filter(pk=attempt.pk).update(checkpointed_at=now - timedelta(minutes=5))

    risk = shown(client_for(alice), task)
    assert risk["Last checkpoint"] == "5 min ago"
    assert risk["Would lose"] == "5 min of work"


def test_over_quota_it_is_safe_for_the_time_that_its_queue_gives(
    example: Example, alice: User, submit: Submit, run_in: RunIn, client_for: ClientFor
) -> None:
    Queue.objects.filter(pk=example.dev_queue.pk).update(min_runtime_s=7200)
    example.dev.amounts.update(reserved_text="0", reserved_milli=0)
    task = submit(alice, "train")
    attempt = run_in(task, example.h100, since=timezone.now() - timedelta(hours=1))

    assert shown(client_for(alice), task)["Can be preempted"].startswith("from")

    long_ago = timezone.now() - timedelta(hours=3)
    Attempt.objects.filter(pk=attempt.pk).update(started_at=long_ago)
    assert shown(client_for(alice), task)["Can be preempted"] == "yes"


def test_the_bar_of_a_running_task_counts_it_as_its_page_says(
    example: Example, alice: User, submit: Submit, run_in: RunIn
) -> None:
    """Admitted over quota, it fits into the reservation by now: nobody may reclaim it."""
    task = submit(alice, "train")
    run_in(task, example.h100, since=timezone.now() - timedelta(hours=1))
    event_record(
        "task.allocated",
        actor=None,
        object_type="task",
        object_id=task.pk,
        data={"generation": 1, "tier": "over_quota"},
    )

    story, now = load_task_timeline(alice, str(task.pk)), load_task_summary(alice, str(task.pk))

    assert isinstance(story, TaskTimeline)
    assert isinstance(now, TaskSummaryCard)
    assert story.bar is not None
    assert (now.is_over_quota, story.bar.segments[-1].kind) == (False, "run")
    # An attempt that is over stays as it counted.
    Attempt.objects.update(state=AttemptState.FINISHED, ended_at=timezone.now())
    story = load_task_timeline(alice, str(task.pk))
    assert isinstance(story, TaskTimeline)
    assert story.bar is not None
    assert "over" in {one.kind for one in story.bar.segments}


def test_a_paused_task_is_resumed_from_its_page(
    alice: User,
    charlie: User,
    submit: Submit,
    run_in: RunIn,
    example: Example,
    client_for: ClientFor,
) -> None:
    task = submit(alice, "train")
    Task.objects.filter(pk=task.pk).update(state=TaskState.ALLOCATED, generation=1)
    Task.objects.filter(pk=task.pk).update(state=TaskState.STOPPING)
    Task.objects.filter(pk=task.pk).update(state=TaskState.PAUSED)
    client = client_for(alice)

    assert "Resume" in client.get(reverse("task_detail", args=[task.pk])).content.decode()
    assert client_for(charlie).post(reverse("task_resume", args=[task.pk])).status_code == 404
    client.post(reverse("task_resume", args=[task.pk]))

    task.refresh_from_db()
    assert task.state == TaskState.QUEUED
    page = client.get(reverse("task_detail", args=[task.pk])).content.decode()
    assert words_on(page, "Resume") == []


def test_a_task_shows_what_it_runs(alice: User, submit: Submit, client_for: ClientFor) -> None:
    task = submit(alice, "train")
    content = {"image": "i.example/a:1", "command": ["go", "on"], "working_dir": "/w"}
    change_content(task, **content, volumes=["datasets"])

    page = client_for(alice).get(reverse("task_detail", args=[task.pk])).content.decode()

    for words in ("i.example/a:1", "go on", "/w", "datasets"):
        assert f">{words}</dd>" in page


def test_a_waiting_task_is_moved_to_another_queue_from_its_page(
    alice: User, bob: User, submit: Submit, client_for: ClientFor
) -> None:
    task = submit(alice, "train")
    address = reverse("task_change_queue", args=[task.pk])

    page = client_for(alice).get(reverse("task_detail", args=[task.pk])).content.decode()
    of_a_colleague = client_for(bob).get(reverse("task_detail", args=[task.pk])).content.decode()

    assert f'href="{address}"' in page
    assert address not in of_a_colleague


def test_a_task_that_was_moved_ahead_waits_since_it_was_submitted(
    alice: User, submit: Submit
) -> None:
    now = timezone.now()
    task = submit(alice, "train")
    Task.objects.filter(pk=task.pk).update(
        submitted_at=now - timedelta(hours=3), waiting_since=now - timedelta(hours=1)
    )

    story = load_task_timeline(alice, str(task.pk))

    assert isinstance(story, TaskTimeline)
    assert story.bar is not None
    assert story.bar.began == now - timedelta(hours=1)
    assert story.waiting < timedelta(hours=2)


def test_a_task_aborted_in_its_queue_waited_until_then(
    alice: User, submit: Submit, client_for: ClientFor
) -> None:
    now = timezone.now()
    task = submit(alice, "train")
    Task.objects.filter(pk=task.pk).update(submitted_at=now - timedelta(hours=3))
    task_abort(actor=alice, task=task)
    Task.objects.filter(pk=task.pk).update(ended_at=now - timedelta(hours=1))

    story = load_task_timeline(alice, str(task.pk))
    page = client_for(alice).get(reverse("task_detail", args=[task.pk])).content.decode()

    assert isinstance(story, TaskTimeline)
    assert story.waiting == timedelta(hours=2)
    assert story.waiting_from is None
    assert "has not been enqueued yet" not in page


def test_a_dequeued_task_says_how_long_it_waited(
    alice: User, submit: Submit, client_for: ClientFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now - timedelta(hours=3))
    task = submit(alice, "train")
    monkeypatch.setattr(timezone, "now", lambda: now - timedelta(hours=1))
    task_dequeue(actor=alice, task=task)
    monkeypatch.undo()
    address = reverse("task_detail", args=[task.pk])

    story = load_task_timeline(alice, str(task.pk))
    page = text(client_for(alice).get(address))
    task_abort(actor=alice, task=task)
    ended = text(client_for(alice).get(address))

    assert isinstance(story, TaskTimeline)
    assert story.bar is not None
    assert story.waiting == timedelta(hours=2)
    assert "A draft again since" in page
    assert "It waited 2 h 00 min before." in page
    assert "has not been enqueued yet" not in page
    assert "The task was a draft when it ended. It had waited 2 h 00 min before." in ended


def test_a_task_aborted_while_it_ran_does_not_wait_after_its_attempt(
    example: Example, alice: User, submit: Submit, run_in: RunIn
) -> None:
    now = timezone.now()
    task = submit(alice, "train")
    Task.objects.filter(pk=task.pk).update(submitted_at=now - timedelta(hours=3))
    attempt = run_in(task, example.h100, since=now - timedelta(hours=2))
    task_abort(actor=alice, task=task)
    finished = {"state": AttemptState.FINISHED, "ended_at": now - timedelta(minutes=9)}
    Attempt.objects.filter(pk=attempt.pk).update(**finished)
    Task.objects.filter(pk=task.pk).update(state=TaskState.ABORTED, ended_at=now)

    story = load_task_timeline(alice, str(task.pk))

    assert isinstance(story, TaskTimeline)
    assert story.waiting == timedelta(hours=1)


def test_the_sums_of_a_running_task_count_on_in_the_browser(
    example: Example, alice: User, submit: Submit, run_in: RunIn, client_for: ClientFor
) -> None:
    now = timezone.now()
    task = submit(alice, "train")
    first = run_in(task, example.h100, since=now - timedelta(hours=3))
    Attempt.objects.filter(pk=first.pk).update(
        state=AttemptState.FINISHED, ended_at=now - timedelta(hours=2)
    )
    Task.objects.filter(pk=task.pk).update(submitted_at=now - timedelta(hours=4))
    again = now - timedelta(minutes=30)
    Attempt.objects.create(
        task=task,
        generation=2,
        state=AttemptState.RUNNING,
        queue=first.queue,
        policy=first.policy,
        pool=first.pool,
        request=first.request,
        allocated_at=again,
        started_at=again,
    )

    story = load_task_timeline(alice, str(task.pk))
    page = client_for(alice).get(reverse("task_detail", args=[task.pk])).content.decode()

    assert isinstance(story, TaskTimeline)
    assert story.bar is not None
    assert story.bar.is_growing
    assert story.running_from == again - timedelta(hours=1)
    assert (story.waiting, story.waiting_from) == (timedelta(hours=2, minutes=30), None)
    ran = page[page.index('id="attempts-title"') :]
    assert f'<time datetime="{again.isoformat()}' in ran.replace("Z", "+00:00")


def shown(client: Client, task: Task) -> dict[str, str]:
    """The terms of the panel of a running task with the values next to them."""
    html = client.get(reverse("task_detail", args=[task.pk])).content.decode()
    pairs = re.findall(r"<dt[^>]*>(.*?)</dt>\s*<dd[^>]*>(.*?)</dd>", html, re.DOTALL)
    return {plain(term): plain(words) for term, words in pairs}


def plain(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_an_abort_that_comes_too_late_says_so(
    example: Example, alice: User, submit: Submit, run_in: RunIn, client_for: ClientFor
) -> None:
    task = submit(alice, "train")
    run_in(task, example.h100, since=timezone.now() - timedelta(hours=1))
    Attempt.objects.update(state=AttemptState.FINISHED, ended_at=timezone.now())
    Task.objects.filter(pk=task.pk).update(state=TaskState.COMPLETED, ended_at=timezone.now())

    page = client_for(alice).post(reverse("task_abort", args=[task.pk]), follow=True)

    words = page.content.decode()
    assert "Nothing was aborted: train had ended already (completed)." in words
    assert "train is aborted" not in words


def test_the_priority_of_a_waiting_task_is_changed_on_its_page(
    example: Example,
    alice: User,
    bob: User,
    charlie: User,
    submit: Submit,
    client_for: ClientFor,
) -> None:
    Queue.objects.filter(pk=example.dev_queue.pk).update(max_priority=5)
    task = submit(alice, "train")
    address, client = reverse("task_priority", args=[task.pk]), client_for(alice)
    page = reverse("task_detail", args=[task.pk])

    assert f'href="{address}"' in client.get(page).content.decode()
    words = f"From -1000 to 5 in {example.dev_queue.name}. Higher priorities start first."
    assert words in text(client.get(address))
    refused = client.post(address, {"priority": "6"})
    changed = client.post(address, {"priority": "5"}, follow=True)

    assert refused.status_code == 400
    assert "Enter a whole number from -1000 to 5." in text(refused)
    assert "train has priority 5 now." in text(changed)
    assert "Priority changed" in text(changed)
    task.refresh_from_db()
    assert task.priority == 5
    assert f'href="{address}"' not in client_for(bob).get(page).content.decode()
    assert client_for(bob).post(address, {"priority": "0"}).status_code == 403
    assert client_for(charlie).post(address, {"priority": "0"}).status_code == 404


def test_a_priority_that_another_user_changed_meanwhile_is_not_overwritten(
    example: Example, root: User, alice: User, submit: Submit, client_for: ClientFor
) -> None:
    Queue.objects.filter(pk=example.dev_queue.pk).update(max_priority=5)
    task = submit(alice, "train")
    client, address = client_for(alice), reverse("task_priority", args=[task.pk])
    page = client.get(address).content.decode()
    opened = dict(re.findall(r'name="(initial-priority)" value="([^"]*)"', page))

    client_for(root).post(address, {"priority": "3"})
    refused = client.post(address, {**opened, "priority": "5"})

    assert opened == {"initial-priority": "0"}
    assert refused.status_code == 400
    assert "It was changed to this meanwhile: 3" in errors_at("priority", refused)
    task.refresh_from_db()
    assert task.priority == 3


def test_a_running_task_gets_no_other_priority(
    example: Example, alice: User, submit: Submit, run_in: RunIn, client_for: ClientFor
) -> None:
    task = submit(alice, "train")
    run_in(task, example.h100)
    client, address = client_for(alice), reverse("task_priority", args=[task.pk])

    page = client.get(reverse("task_detail", args=[task.pk])).content.decode()
    refused = client.post(address, {"priority": "0"})

    assert address not in page
    assert "Only drafts and waiting tasks can get another priority." in text(refused)


def test_the_form_of_a_task_names_the_priorities_of_each_queue(
    example: Example, alice: User, client_for: ClientFor
) -> None:
    Queue.objects.filter(pk=example.dev_queue.pk).update(max_priority=5)
    name = example.dev_queue.name

    page = client_for(alice).get(reverse("task_enqueue")).content.decode()
    chosen = client_for(alice).get(reverse("task_enqueue"), {"queue": name}).content.decode()

    words = f"From -1000 to 5 in {name}. Higher priorities start first."
    unknown = "From -1000 to what the queue allows. Higher priorities start first."
    assert f'data-choice="">{unknown}' in page
    assert f'data-choice="{name}" hidden>{words}' in page
    assert f'data-choice="{name}">{words}' in chosen
    assert f'data-choice="" hidden>{unknown}' in chosen


def test_a_new_task_with_a_priority_out_of_range_is_refused_with_the_range(
    example: Example, alice: User, client_for: ClientFor
) -> None:
    body = {"name": "t", "command": "true", "queue": example.dev_queue.name}

    far = client_for(alice).post(reverse("task_enqueue"), {**body, "priority": "1001"})
    above = client_for(alice).post(reverse("task_enqueue"), {**body, "priority": "1"})

    assert "Enter a whole number from -1000 to 1000." in errors_at("priority", far)
    words = f"Is 1: it must lie between -1000 and 0 in queue {example.dev_queue.name}"
    assert words in errors_at("priority", above)


def test_a_refusal_of_the_whole_task_stands_in_a_closed_box(
    alice: User, client_for: ClientFor, settings: LazySettings
) -> None:
    settings.RPM_DRAFTS_PER_PERSON = 0

    response = client_for(alice).post(reverse("task_enqueue"), {"name": "t", "command": "true"})

    page = response.content.decode()
    assert response.status_code == 400
    assert 'role="alert"' in page
    assert page.count("<div") == page.count("</div>")
