"""The search of the navigation: what it finds, for whom, and how well."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.urls import reverse

from apps.accounts.models import User
from apps.dashboard.selectors import search
from apps.dashboard.selectors.search import Hit, search_results
from apps.dashboard.selectors.search_words import Question, fit, question_of, uuid_range
from apps.nodes.models import Node
from apps.tasks.models import Task
from tests.dashboard.conftest import ClientFor, Submit
from tests.dashboard.page_reader import text
from tests.people import Example

pytestmark = pytest.mark.django_db


def found(user: User, words: str) -> dict[str, list[str]]:
    """Labels by group."""
    groups = search_results(user, words, ()).groups
    return {group.title: [hit.label for hit in group.hits] for group in groups}


def links(user: User, words: str) -> list[str]:
    return [hit.href for group in search_results(user, words, ()).groups for hit in group.hits]


def test_any_of_400_tasks_is_first_after_at_most_three_keystrokes(
    alice: User, submit: Submit
) -> None:
    first = submit(alice, "train-1")
    for number in range(2, 401):
        first.pk = Task._meta.get_field("id").get_default()
        first.name = f"train-{number}"
        first.save(force_insert=True)

    for number in (1, 7, 40, 117, 317, 400):
        assert found(alice, str(number))["Tasks"][0] == f"train-{number}"


def test_everybody_finds_only_what_they_may_see(
    alice: User, charlie: User, root: User, example: Example, submit: Submit
) -> None:
    submit(alice, "secret-work")
    Node.objects.create(name="secret-node", pool=example.h100)
    queue, policy = example.dev_queue.name, example.dev.name

    assert found(alice, "secret") == {"Tasks": ["secret-work"]}
    assert found(charlie, "secret") == {}
    assert found(root, "secret") == {"Tasks": ["secret-work"], "Nodes": ["secret-node"]}
    assert found(alice, queue)["Queues"] == [queue]
    assert found(alice, policy)["Policies"] == [policy]
    assert "Queues" not in found(charlie, queue)
    assert "Policies" not in found(charlie, policy)
    assert "People" not in found(alice, "charlie")
    assert found(root, "charlie")["People"] == [str(charlie)]


def test_a_task_is_found_by_the_beginning_of_its_id(
    alice: User, charlie: User, submit: Submit
) -> None:
    task = submit(alice, "train")
    page = reverse("task_detail", args=[task.pk])

    assert links(alice, str(task.pk)) == links(alice, str(task.pk)[:30]) == [page]
    assert links(charlie, str(task.pk)) == []
    assert uuid_range("abcde") is None
    assert uuid_range("train-1") is None
    assert uuid_range("a" * 33) is None


def test_names_that_fit_better_come_first_and_so_does_their_group(
    alice: User, submit: Submit
) -> None:
    for name in ("my-retrain", "trainer", "a train", "train"):
        submit(alice, name)
    pages = [Hit("A trace", "/trace/", "x")]

    groups = search_results(alice, "train", pages).groups

    assert [hit.label for hit in groups[0].hits] == ["train", "a train", "trainer", "my-retrain"]
    titles = [group.title for group in search_results(alice, "trace", pages).groups]
    assert titles == ["Pages and actions"]
    titles = [group.title for group in search_results(alice, "a tra", pages).groups]
    assert titles == ["Tasks", "Pages and actions"]
    assert fit("x-retrain-7", ("7", "retrain")) == 1


def test_tasks_that_have_not_ended_come_before_ended_ones(alice: User, submit: Submit) -> None:
    waiting, ended = submit(alice, "train"), submit(alice, "train")
    Task.objects.filter(pk=ended.pk).update(state="aborted", ended_at=ended.created_at)

    pages = [reverse("task_detail", args=[task.pk]) for task in (waiting, ended)]
    assert links(alice, "train") == pages


def test_a_search_reads_a_bounded_number_of_recent_tasks_and_leads_to_the_list_of_all(
    alice: User, bob: User, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "RECENT_TASKS", 2)
    for owner, name in ((bob, "train-1"), (alice, "train-2"), (bob, "train-3"), (bob, "train-4")):
        submit(owner, name)

    results = search_results(alice, "train", ())

    # The newest two of everybody, and her own.
    labels = {hit.label for hit in results.groups[0].hits}
    assert labels == {"train-2", "train-3", "train-4"}
    assert results.all_tasks == "/tasks/?view=all&name=train"


def test_why_a_task_waits_leads_to_its_reason(alice: User, charlie: User, submit: Submit) -> None:
    task = submit(alice, "train-17")
    ended = submit(alice, "train-17-old")
    Task.objects.filter(pk=ended.pk).update(state="aborted", ended_at=ended.created_at)

    for asked in ("why does train-17 wait", "Why is train-17 still waiting?", "why train-17"):
        assert found(alice, asked) == {"Answers": ["Why train-17 waits"]}
        assert links(alice, asked) == [reverse("task_detail", args=[task.pk])]
    assert found(charlie, "why does train-17 wait") == {}


def test_what_somebody_can_see_leads_to_the_explanation_of_their_permissions(
    alice: User, bob: User, charlie: User, root: User, example: Example
) -> None:
    page = reverse("access_explain")
    queue = example.dev_queue.name

    assert links(root, "what can bob see") == [f"{page}?user=bob"]
    assert links(alice, "what can I do?") == [f"{page}?user=alice"]
    assert links(alice, "what can charlie see") == []
    on_queue = links(root, f"can bob enqueue in {queue}")
    assert on_queue == [f"{page}?user=bob&kind=queue&object={queue}"]
    # A name that the reader may not see is no object for them.
    assert links(charlie, f"can I see {queue}") == [f"{page}?user=charlie"]


@pytest.mark.parametrize(
    ("words", "want"),
    [
        ("why does a b wait?", Question("a b", is_about_task=True)),
        ("why won't-start", Question("won't-start", is_about_task=True)),
        ("may mina read", Question("mina", is_about_task=False)),
        ("what can mina see of pool-1", Question("mina", is_about_task=False, thing="pool-1")),
        ("what", None),
        ("why", None),
        ("canary see", None),
    ],
)
def test_questions_differ_from_words(words: str, want: Question | None) -> None:
    assert question_of(words) == want


def test_the_page_lists_actions_of_the_reader_and_the_dialog_gets_the_results_alone(
    alice: User, root: User, client_for: ClientFor
) -> None:
    path = reverse("search")

    page = text(client_for(alice).get(path))
    reply = client_for(root).get(path, {"q": "invite"}, headers={"HX-Request": "true"})
    part = reply.content.decode()

    assert "New task" in page
    assert "Invite people" not in page
    assert "Invite people" in part
    assert "<main" not in part
    escaped = client_for(alice).get(path, {"q": "<b>\0x"}).content.decode()
    assert "<b>" not in escaped
    assert "“&lt;b&gt;x”" in escaped


def test_nothing_found_says_so_and_offers_the_list_of_tasks(
    alice: User, client_for: ClientFor
) -> None:
    page = client_for(alice).get(reverse("search"), {"q": "nowhere"}).content.decode()

    assert "Nothing that you can see matches “nowhere”." in page
    assert re.search(r'href="/tasks/\?view=all&amp;name=nowhere"', page)


def test_a_search_makes_a_fixed_number_of_queries(
    root: User,
    alice: User,
    dev_group: Group,
    submit: Submit,
    client_for: ClientFor,
    django_assert_num_queries: Any,
) -> None:
    client = client_for(root)
    client.get(reverse("search"))

    for more in (1, 5):
        for number in range(more):
            submit(alice, f"many-{more}-{number}")
            User.objects.create(username=f"many-{more}-{number}").groups.add(dev_group)
        with django_assert_num_queries(QUERIES):
            client.get(reverse("search"), {"q": "many"}, headers={"HX-Request": "true"})


# Session, user and permissions, and one for each kind of object.
QUERIES = 13
