"""The order of a queue, its pause and settings, and where its tasks go, through HTTP."""

import re

import pytest
from django.core.cache import cache
from django.urls import reverse
from guardian.shortcuts import assign_perm

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.configuration.services.queues import (
    profile_connect,
    profile_disconnect,
    queue_change,
    queue_pause,
)
from apps.dashboard.render import card_render
from apps.policies.models import Profile, Queue
from apps.tasks.models import Attempt, Task
from apps.tasks.selectors.queue_order import tasks_in_order
from apps.tasks.services.queue_order import task_reorder
from apps.tasks.services.stop import task_dequeue
from apps.usage.selectors.waiting_tasks import waiting_by_queue
from tests.allocation.state import begin, enqueue, make_node
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.dashboard.page_reader import errors_at, folded, shown, text
from tests.page_words import words_on
from tests.people import Example

pytestmark = pytest.mark.django_db


@pytest.fixture
def tasks(alice: User, submit: Submit) -> dict[str, Task]:
    return {name: submit(alice, name) for name in ("first", "second", "third")}


def names(queue: Queue) -> list[str]:
    return [task.name for task in tasks_in_order(queue.pk)]


def test_the_order_is_set_by_who_manages_the_queue_and_by_nobody_else(
    example: Example,
    tasks: dict[str, Task],
    alice: User,
    bob: User,
    charlie: User,
    client_for: ClientFor,
) -> None:
    path = reverse("queue_order", args=[example.dev_queue.pk])
    move = {"move": f"top {tasks['third'].pk}"}
    assign_perm("manage_queue", bob, example.dev_queue)

    assert client_for(charlie).post(path, move).status_code == 404
    assert client_for(alice).post(path, move).status_code == 403
    assert names(example.dev_queue) == ["first", "second", "third"]
    done = client_for(bob).post(path, move)

    assert done.status_code == 302
    assert names(example.dev_queue) == ["third", "first", "second"]


def test_the_card_with_the_new_order_and_the_next_task_is_the_answer(
    example: Example, tasks: dict[str, Task], root: User, client_for: ClientFor
) -> None:
    path = reverse("queue_order", args=[example.dev_queue.pk])
    drag = {"drag": f"before {tasks['third'].pk} {tasks['second'].pk}"}

    response = client_for(root).post(path, drag, headers={"HX-Request": "true"})
    html = response.content.decode()
    top = client_for(root).post(
        path, {"move": f"top {tasks['second'].pk}"}, headers={"HX-Request": "true"}
    )

    assert html.index(">first<") < html.index(">third<") < html.index(">second<")
    assert 'data-live="queue_waiting:' in html
    assert "second Next" in text(top)


@pytest.mark.parametrize(
    "move", ["", "top", "sideways 1", "before", "top 1 2 3", "top " + "9" * 5000, "top a b"]
)
def test_a_move_that_no_page_sends_changes_nothing(
    example: Example, tasks: dict[str, Task], root: User, client_for: ClientFor, move: str
) -> None:
    client = client_for(root)
    path = reverse("queue_order", args=[example.dev_queue.pk])

    assert client.post(path, {"move": move}).status_code == 302
    response = client.post(path, {"move": move}, headers={"HX-Request": "true"})

    assert response.headers["HX-Refresh"] == "true"
    assert "move is not one" in text(client.get(reverse("queue_list")))
    assert names(example.dev_queue) == ["first", "second", "third"]


def test_only_who_manages_sees_the_buttons(
    example: Example, tasks: dict[str, Task], alice: User, root: User
) -> None:
    key = str(example.dev_queue.pk)
    theirs, everything = (card_render("queue_waiting", key, user) for user in (alice, root))

    assert theirs is not None
    assert everything is not None
    assert (
        words_on(theirs.html, "queue-order", "drag-order", "queue_pause", "Move to another queue")
        == []
    )
    assert everything.html.count('name="move"') == 12
    assert everything.html.count("disabled") == 4


def test_a_queue_is_paused_with_a_reason_and_resumed(
    example: Example,
    tasks: dict[str, Task],
    alice: User,
    charlie: User,
    quinn: User,
    client_for: ClientFor,
) -> None:
    path = reverse("queue_pause", args=[example.dev_queue.pk])

    assert client_for(charlie).get(path).status_code == 404
    assert client_for(alice).get(path).status_code == 403
    assert "3 waiting tasks keep their places" in text(client_for(quinn).get(path))
    client_for(quinn).post(path, {"reason": "until the audit is over"})
    paused = text(client_for(alice).get(reverse("queue_detail", args=[example.dev_queue.pk])))
    resume = reverse("queue_resume", args=[example.dev_queue.pk])

    assert "until the audit is over" in paused
    assert client_for(alice).post(resume).status_code == 403
    assert client_for(quinn).post(resume).status_code == 302
    assert not Queue.objects.get(pk=example.dev_queue.pk).is_paused


def test_a_pause_by_another_is_not_overwritten_unseen(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    path = reverse("queue_pause", args=[example.dev_queue.pk])
    seen = client.get(path).context["pause_version"]
    queue_pause(actor=None, queue=example.dev_queue, reason="the audit")

    refused = client.post(path, {"reason": "mine", "pause_version": seen})

    assert refused.status_code == 409
    assert "It was paused meanwhile: “the audit”" in text(refused)
    assert Queue.objects.get(pk=example.dev_queue.pk).pause_reason == "the audit"
    again = {"reason": "mine", "pause_version": refused.context["pause_version"]}
    assert client.post(path, again).status_code == 302
    assert Queue.objects.get(pk=example.dev_queue.pk).pause_reason == "mine"


def test_settings_have_a_sentence_each_and_errors_at_their_field(
    example: Example, alice: User, quinn: User, charlie: User, client_for: ClientFor
) -> None:
    path = reverse("queue_settings", args=[example.dev_queue.pk])
    client = client_for(quinn)
    form = {
        "name": example.dev_queue.name,
        "allow_over_quota": "on",
        "allow_streams": "on",
        "on_preemption": "requeue",
        "on_node_loss": "wait",
        "min_runtime_s": "0",
        "max_preemptions": "",
        "grace_s": "30",
        "max_priority": "5",
        "max_waiting": "",
        "idle_warn_minutes": "30",
        "idle_stop_minutes": "60",
    }
    page = client.get(path).content.decode()
    wrong = {
        "name": "Not A Name",
        "grace_s": "99999999",
        "max_priority": "2000",
        "on_preemption": "dance",
        "idle_warn_minutes": "4",
        "idle_stop_minutes": "30",
    }

    assert page.count('class="hint"') == len(form)
    for field, value in wrong.items():
        refused = client.post(path, form | {field: value})
        assert refused.status_code == 400
        assert f'id="id_{field}_error"' in refused.content.decode(), field
    taken = client.post(path, form | {"name": example.research_queue.name})
    assert 'id="id_name_error"' in taken.content.decode()
    assert client.post(path, form).status_code == 302
    queue = Queue.objects.get(pk=example.dev_queue.pk)
    rule = "warned after 30 minutes and stopped after 60 minutes"
    assert rule in text(client_for(alice).get(reverse("queue_detail", args=[queue.pk])))
    assert (queue.max_priority, queue.idle_warn_minutes, queue.idle_stop_minutes) == (5, 30, 60)
    assert client_for(alice).get(path).status_code == 403
    assert client_for(alice).post(path, form).status_code == 403
    assert client_for(charlie).get(path).status_code == 404


def test_two_people_overwrite_nothing_of_each_other_in_the_settings(
    example: Example, quinn: User, root: User, client_for: ClientFor
) -> None:
    client, path = client_for(quinn), reverse("queue_settings", args=[example.dev_queue.pk])
    opened = shown(client.get(path)) | {"on_preemption": "requeue", "on_node_loss": "wait"}
    opened |= {"allow_over_quota": "on"}
    queue_change(actor=root, queue=example.dev_queue, changes={"grace_s": 60})

    other_field = client.post(path, opened | {"max_priority": "5"})
    same_field = client.post(path, opened | {"grace_s": "90"})

    assert other_field.status_code == 302
    assert same_field.status_code == 400
    assert "It was changed to this meanwhile: 60" in errors_at("grace_s", same_field)
    queue = Queue.objects.get(pk=example.dev_queue.pk)
    assert (queue.max_priority, queue.grace_s) == (5, 60)


def test_a_moved_task_is_in_the_new_queue_everywhere_at_once(
    example: Example, tasks: dict[str, Task], alice: User, root: User, client_for: ClientFor
) -> None:
    smaller = Profile.objects.get(name="2xGPU")
    other = profile_connect(actor=root, policy=example.dev, profile=smaller)
    client = client_for(alice)
    path = reverse("task_change_queue", args=[tasks["first"].pk])

    offered = client.get(path).content.decode()
    moved = client.post(path, {"queue": other.pk})

    assert moved.status_code == 302
    assert other.name in offered
    assert example.research_queue.name not in offered
    cards = {
        "old": card_render("queue_waiting", str(example.dev_queue.pk), alice),
        "new": card_render("queue_waiting", str(other.pk), alice),
        "task": card_render("task_head", str(tasks["first"].pk), alice),
        "list": card_render("task_rows", "", alice),
    }
    html = {name: card.html for name, card in cards.items() if card is not None}
    assert str(tasks["first"].pk) not in html["old"]
    assert str(tasks["first"].pk) in html["new"]
    assert other.name in html["task"]
    assert other.name in html["list"]
    rows = text(client.get(reverse("queue_list")))
    assert f"{other.name} 2xGPU 2 GPU 0 running 1 waiting" in rows


def test_a_task_is_moved_by_its_owner_or_who_manages_it_and_only_where_both_may(
    example: Example,
    tasks: dict[str, Task],
    bob: User,
    charlie: User,
    root: User,
    client_for: ClientFor,
) -> None:
    path = reverse("task_change_queue", args=[tasks["first"].pk])

    assert client_for(charlie).get(path).status_code == 404
    assert client_for(bob).get(path).status_code == 403
    assert "No other queue is open to both you and alice" in text(client_for(root).get(path))
    refused = client_for(root).post(path, {"queue": example.research_queue.pk})

    assert refused.status_code == 400
    assert "first" in names(example.dev_queue)


def test_a_removed_queue_answers_with_a_page_and_no_link_leads_to_it(
    example: Example, tasks: dict[str, Task], alice: User, root: User, client_for: ClientFor
) -> None:
    path = reverse("queue_detail", args=[example.dev_queue.pk])
    profile_disconnect(actor=root, queue=example.dev_queue)
    client = client_for(alice)

    gone = client.get(path)

    assert gone.status_code == 404
    assert "Page not found" in text(gone)
    for page in (reverse("queue_list"), f"{reverse('task_list')}?view=all", reverse("overview")):
        assert path not in client.get(page).content.decode()
    for name in ("queue_order", "queue_resume"):
        assert client.post(reverse(name, args=[example.dev_queue.pk])).status_code == 404


def test_who_was_moved_to_the_top_has_not_waited_longer_for_that(
    example: Example, tasks: dict[str, Task], root: User
) -> None:
    Task.objects.filter(pk=tasks["first"].pk).update(submitted_at="2026-01-01T00:00Z")
    task_reorder(actor=root, task=tasks["third"], move="top")
    task_dequeue(actor=root, task=Task.objects.get(pk=tasks["first"].pk))

    waiting = waiting_by_queue([example.dev_queue.pk])[example.dev_queue.pk]

    assert names(example.dev_queue) == ["third", "second"]
    assert waiting.oldest == tasks["second"].submitted_at


def test_the_list_is_filtered_by_name_or_policy_on_the_page_and_in_its_live_card(
    example: Example, root: User, alice: User, client_for: ClientFor
) -> None:
    client, dev, research = client_for(root), example.dev_queue.name, example.research_queue.name

    pages = {q: text(client.get("/queues/", {"q": q})) for q in ("", "DEV-", "research", "none\0")}
    live = card_render("queue_rows", "dev-", root)

    assert [(dev in page, research in page) for page in pages.values()] == [
        (True, True),
        (True, False),
        (False, True),
        (False, False),
    ]
    assert "No queue matches “none”" in pages["none\0"]
    assert live is not None
    assert (dev in live.html, research in live.html) == (True, False)
    assert research not in text(client_for(alice).get("/queues/", {"q": "research"}))


def test_names_of_queues_that_differ_at_their_end_only_are_shown_whole(
    example: Example, root: User, alice: User, submit: Submit, client_for: ClientFor
) -> None:
    submit(alice, "one")
    client = client_for(root)

    pages = ("/queues/", "/tasks/", f"/policies/{example.dev.pk}/edit/")
    links = [
        re.search(rf"<a([^>]*)>\s*{example.dev_queue.name}\s*</a>", client.get(page).text)
        for page in pages
    ]

    assert [link is not None and "truncate" not in link[1] for link in links] == [True] * 3


def test_a_task_that_started_meanwhile_says_so_where_it_is_to_be_moved(
    example: Example, root: User, alice: User, submit: Submit, run_in: RunIn, client_for: ClientFor
) -> None:
    other = profile_connect(
        actor=root, policy=example.dev, profile=Profile.objects.get(name="2xGPU")
    )
    task = submit(alice, "quick")
    run_in(task, example.h100)

    answer = client_for(alice).post(
        reverse("task_change_queue", args=[task.pk]), {"queue": other.pk}
    )

    assert answer.status_code == 400
    assert "The task has started meanwhile" in errors_at("queue", answer)


def test_the_common_reason_is_said_once_and_each_row_has_its_expected_start(
    example: Example, tasks: dict[str, Task], alice: User, charlie: User, client_for: ClientFor
) -> None:
    cache.clear()
    make_node(example.bare_metal, name="b1", gpus=4)
    Task.objects.update(time_limit_s=3600)
    run_pass()
    begin(*Attempt.objects.all())
    run_pass()
    key = example.dev_queue.pk
    path = reverse("queue_expected_starts", args=[key])

    before = card_render("queue_waiting", str(key), alice)
    starts = client_for(alice).get(path).content.decode()
    after = card_render("queue_waiting", str(key), alice)

    assert before is not None
    assert after is not None
    said = folded(before.html)
    assert said.count("free of the 4 GPUs needed") == 1
    assert "2 of 2 tasks here." in said
    assert "<time" in starts.split(f'id="expected-{tasks["second"].pk}"')[1]
    # What is computed once stays when the card changes.
    assert after.html.count("<time") == before.html.count("<time") + 2
    assert client_for(charlie).get(path).status_code == 404
    cache.clear()


def test_queues_stand_below_their_policy_those_with_waiting_tasks_first(
    example: Example, root: User, charlie: User, client_for: ClientFor
) -> None:
    enqueue(charlie, example.research_queue)
    other = Profile.objects.get(name="2xGPU")
    idle = profile_connect(actor=root, policy=example.research, profile=other)

    page = client_for(root).get("/queues/").content.decode()
    wanted = [example.research_queue.name, idle.name, example.dev_queue.name]

    assert sorted(wanted, key=lambda name: page.index(f">{name}</a>")) == wanted
