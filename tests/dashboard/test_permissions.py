"""Charlie must not see Dev: not on a page, not in a card, not through an action."""

import re

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import ADMINS, User
from apps.accounts.services.people import user_create
from apps.core.notifications import group_name
from apps.dashboard.render import RenderedCard, card_audience, card_render
from apps.events.models import Event
from apps.nodes.models import Node
from apps.policies.models import Policy
from apps.tasks.models import Member, Task
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.page_words import words_on
from tests.people import Example

pytestmark = pytest.mark.django_db

NAMED = ("Dev", "tokenizer-sweep", "secret-option", "alice", "H100", "Bare Metal")


@pytest.fixture
def task(example: Example, alice: User, submit: Submit, run_in: RunIn) -> Task:
    submit(alice, "tokenizer-sweep-waiting")
    task = submit(alice, "tokenizer-sweep")
    run_in(task, example.h100)
    task.refresh_from_db()
    return task


def test_what_is_not_ones_own_does_not_exist(
    example: Example, task: Task, charlie: User, client_for: ClientFor
) -> None:
    client = client_for(charlie)
    paths = [
        reverse("policy_detail", args=[example.dev.pk]),
        reverse("queue_detail", args=[example.dev_queue.pk]),
        reverse("task_detail", args=[task.pk]),
        reverse("task_log_download", args=[task.pk, 1]),
        reverse("node_list"),
    ]
    for path in paths:
        assert client.get(path).status_code == 404, path


def test_no_list_names_it(task: Task, charlie: User, client_for: ClientFor) -> None:
    client = client_for(charlie)
    names = (
        "overview",
        "policy_list",
        "queue_list",
        "task_list",
        "resources",
        "task_enqueue",
        "usage",
    )
    for name in names:
        html = client.get(reverse(name)).content.decode()

        assert words_on(html, *NAMED) == [], name


def test_no_filter_of_the_list_reaches_it(
    example: Example, task: Task, charlie: User, client_for: ClientFor
) -> None:
    for query in (f"queue={example.dev_queue.pk}", f"policy={example.dev.pk}", "name=sweep"):
        html = client_for(charlie).get(f"{reverse('task_list')}?view=all&{query}").content.decode()

        assert str(task.pk) not in html


def test_no_card_of_it_is_rendered(
    example: Example, task: Task, charlie: User, client_for: ClientFor
) -> None:
    cards = [
        ("policy_card", str(example.dev.pk)),
        ("policy_pause", str(example.dev.pk)),
        ("policy_tasks", str(example.dev.pk)),
        ("policy_own_usage", str(example.dev.pk)),
        ("queue_waiting", str(example.dev_queue.pk)),
        ("task_head", str(task.pk)),
        ("task_timeline", str(task.pk)),
        ("task_summary", str(task.pk)),
        ("task_log", str(task.pk)),
        ("node_rows", ""),
        ("nonsense", "1"),
        ("policy_card", "1 or 1=1"),
        ("policy_card", "9" * 5000),
        ("policy_own_usage", "9" * 5000),
        ("policy_tasks", "9" * 5000),
        ("queue_waiting", "9" * 5000),
        ("task_head", "no-uuid"),
    ]
    for name, key in cards:
        assert card_render(name, key, charlie) is None, name
        path = reverse("card", args=[name])
        assert client_for(charlie).get(path, {"key": key}).status_code == 404


def test_no_action_touches_it(task: Task, charlie: User, client_for: ClientFor) -> None:
    for name in (
        "task_abort",
        "task_dequeue",
        "task_hold",
        "task_release",
        "task_run_again",
        "task_resume",
        "task_enqueue_draft",
    ):
        response = client_for(charlie).post(reverse(name, args=[task.pk]), {"queue": "1"})

        assert response.status_code == 404
    task.refresh_from_db()
    assert task.state == "running"


def test_a_colleague_sees_the_task_and_neither_its_command_nor_its_log(
    task: Task, bob: User, client_for: ClientFor
) -> None:
    html = client_for(bob).get(reverse("task_detail", args=[task.pk])).content.decode()

    assert "tokenizer-sweep" in html
    assert "secret-option" not in html
    assert "log-title" not in html
    assert "abort-dialog" not in html
    assert client_for(bob).post(reverse("task_abort", args=[task.pk])).status_code == 403
    log = client_for(bob).get(reverse("task_log_download", args=[task.pk, 1]))
    assert log.status_code == 404


@pytest.mark.parametrize("state", ["running", "failed", "stopping"])
def test_a_colleague_does_not_see_what_a_node_reported(
    task: Task, alice: User, bob: User, client_for: ClientFor, state: str
) -> None:
    Task.objects.filter(pk=task.pk).update(state=state, state_detail="exec /opt/state-marker")
    facts = {"object_type": "task", "object_id": str(task.pk), "at": timezone.now()}
    Event.objects.create(kind="task.failed", data={"detail": "exec /opt/event-marker"}, **facts)
    Event.objects.create(kind="task.suspect", data={"reason": "from reason-marker"}, **facts)
    markers = ("state-marker", "event-marker", "reason-marker")
    path = reverse("task_detail", args=[task.pk])

    own = client_for(alice).get(path).content.decode()
    seen = client_for(bob).get(path).content.decode()

    assert [one for one in markers if one in own] == list(markers)
    assert [one for one in markers if one in seen] == []


def test_a_policy_may_open_its_logs_to_its_group_and_to_nobody_else(
    example: Example, task: Task, bob: User, charlie: User
) -> None:
    Policy.objects.filter(pk=example.dev.pk).update(logs_open_to_group=True)

    assert card_render("task_log", str(task.pk), bob) is not None
    assert card_render("task_log", str(task.pk), charlie) is None


def test_the_owner_sees_command_and_log(task: Task, alice: User, client_for: ClientFor) -> None:
    html = client_for(alice).get(reverse("task_detail", args=[task.pk])).content.decode()

    assert "secret-option" in html
    assert "log-title" in html


def test_a_draft_is_its_owners_and_the_administrators(
    example: Example, alice: User, bob: User, root: User, client_for: ClientFor
) -> None:
    client_for(alice).post(reverse("task_enqueue"), {"name": "draft-of-alice", "command": "x"})
    draft = Task.objects.get()

    path = reverse("task_detail", args=[draft.pk])
    assert client_for(bob).get(path).status_code == 404
    assert client_for(root).get(path).status_code == 200
    listed = client_for(alice).get(f"{reverse('task_list')}?view=drafts").content.decode()
    assert "draft-of-alice" in listed


def test_a_socket_only_follows_topics_of_what_its_person_sees(
    example: Example, task: Task, charlie: User
) -> None:
    rendered = card_render("overview", "", charlie)

    assert rendered is not None
    assert f"policy.{example.research.pk}" in rendered.topics
    assert f"policy.{example.dev.pk}" not in rendered.topics
    assert group_name("overview") == "live.overview"


def test_how_much_others_run_of_a_shared_profile_is_not_shown(
    example: Example, task: Task, charlie: User, root: User
) -> None:
    theirs = card_render("resource_board", "", charlie)
    everybodys = card_render("resource_board", "", root)

    assert theirs is not None
    assert everybodys is not None
    assert 'data-num="running">0<' in theirs.html
    assert 'data-num="running">1<' not in theirs.html
    assert 'data-num="running">1<' in everybodys.html


def test_made_up_hardware_is_marked_where_it_is_named(
    example: Example, task: Task, root: User
) -> None:
    Node.objects.create(name="demo-1", pool=example.h100, is_simulated=True, runtime="process")
    cards = [("overview", ""), ("resource_board", ""), ("node_rows", "")]
    cards.append(("policy_card", str(example.dev.pk)))
    for name, key in cards:
        rendered = card_render(name, key, root)

        assert rendered is not None
        assert "imulated" in rendered.html, name


def timeless(rendered: RenderedCard | None) -> str:
    """The card without words that a second changes."""
    assert rendered is not None
    return re.sub(r'>[^<]*</time>|data-version="\w+"', "", rendered.html)


def test_only_what_is_the_same_for_two_people_is_rendered_once_for_both(
    example: Example, task: Task, root: User, alice: User, bob: User
) -> None:
    second = user_create(username="second", password=None, groups=[ADMINS])
    for name, key in (
        ("overview", ""),
        ("policy_rows", ""),
        ("policy_card", str(example.dev.pk)),
        ("queue_rows", ""),
        ("resource_board", ""),
        ("node_rows", ""),
    ):
        first_html = timeless(card_render(name, key, root))
        second_html = timeless(card_render(name, key, second))

        assert card_audience(name, root) == card_audience(name, second) == "admins"
        assert first_html == second_html, name
    assert card_audience("overview", alice) != card_audience("overview", bob)
    assert card_audience("task_rows", root) != card_audience("task_rows", second)


def test_an_attempt_that_cannot_be_is_the_last_one(
    task: Task, alice: User, client_for: ClientFor
) -> None:
    page = client_for(alice).get(reverse("task_detail", args=[task.pk]), {"attempt": "9" * 5000})

    assert page.status_code == 200


def test_a_node_is_named_only_to_those_who_see_its_pool(
    example: Example, task: Task, alice: User, root: User
) -> None:
    node = Node.objects.create(name="h100-node-7", pool=example.h100)
    Member.objects.filter(attempt__task=task).update(node=node)

    own, of_admin = (card_render("task_summary", str(task.pk), user) for user in (alice, root))

    assert own is not None
    assert "h100-node-7" not in own.html
    assert of_admin is not None
    assert "h100-node-7" in of_admin.html
