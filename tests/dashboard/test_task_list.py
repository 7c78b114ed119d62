"""The list of tasks: ended ones stand in the order in which they ended."""

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs
from zoneinfo import ZoneInfo

import pytest
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import User
from apps.dashboard.cards import task_list
from apps.dashboard.cards.task_list import TaskList, load_task_list
from apps.dashboard.selectors import tasks as selectors
from apps.dashboard.selectors.tasks import TaskFilter
from apps.nodes.models import Node
from apps.tasks.models import Task
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.dashboard.page_reader import text
from tests.people import Example

pytestmark = pytest.mark.django_db


def ended(task: Task, at: datetime) -> None:
    Task.objects.filter(pk=task.pk).update(state="aborted", ended_at=at)


def names(user: User, query: str) -> tuple[list[str], str]:
    page = load_task_list(user, query)
    assert isinstance(page, TaskList)
    return [row.task.name for row in page.rows], page.older


def test_ended_tasks_are_listed_in_the_order_in_which_they_ended(
    alice: User, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()
    # The first that came ended last; two ended at once.
    for number, ago in enumerate((0, 1, 1, 2)):
        ended(submit(alice, f"t{number}"), now - timedelta(minutes=ago))
    monkeypatch.setattr(task_list, "PAGE", 2)

    first, older = names(alice, "view=ended")
    second, end = names(alice, older)

    assert (first, second, end) == (["t0", "t2"], ["t1", "t3"], "")


def test_other_views_stay_in_the_order_of_creation_and_a_bad_place_is_the_first_page(
    alice: User, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        submit(alice, f"t{number}")
    monkeypatch.setattr(task_list, "PAGE", 2)

    first, older = names(alice, "view=waiting")

    assert (first, names(alice, older)[0]) == (["t2", "t1"], ["t0"])
    assert set(parse_qs(older)) == {"view", "before"}
    assert TaskFilter.parse("view=ended&before=1&before_at=yesterday").query() == "view=ended"


def test_running_tasks_stand_above_those_that_wait_on_every_page(
    alice: User, example: Example, submit: Submit, run_in: RunIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [submit(alice, f"t{number}") for number in range(5)]
    for number in (1, 3):
        run_in(tasks[number], example.h100)
    Task.objects.filter(pk=tasks[0].pk).update(state="rejected")
    monkeypatch.setattr(task_list, "PAGE", 2)

    pages, query = [], "view=active"
    while query:
        page, query = names(alice, query)
        pages.append(page)

    assert pages == [["t3", "t1"], ["t4", "t2"], ["t0"]]
    assert names(alice, "sort=oldest")[0] == ["t1", "t3"]


def test_ended_tasks_are_listed_from_the_oldest_on(
    alice: User, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()
    for number, ago in enumerate((0, 1, 1)):
        ended(submit(alice, f"t{number}"), now - timedelta(minutes=ago))
    monkeypatch.setattr(task_list, "PAGE", 2)

    first, older = names(alice, "view=ended&sort=oldest")

    assert (first, names(alice, older)[0]) == (["t1", "t2"], ["t0"])


def test_tasks_are_filtered_by_owner_tag_and_node(
    alice: User, bob: User, root: User, example: Example, submit: Submit, run_in: RunIn
) -> None:
    submit(bob, "theirs", tags=["night"])
    mine = submit(alice, "mine", tags=["nightly"])
    node = Node.objects.create(name="n1", pool=example.h100)
    run_in(mine, example.h100).members.update(node=node)

    assert names(alice, "owner=bob")[0] == ["theirs"]
    assert names(alice, "tag=night")[0] == ["theirs"]
    assert names(alice, "owner=nobody")[0] == []
    assert names(root, f"node={node.pk}")[0] == ["mine"]
    # Nodes are for administrators.
    assert names(alice, f"node={node.pk}")[0] == []


def test_days_are_those_of_the_reader_by_creation_or_by_the_end(
    alice: User, submit: Submit
) -> None:
    alice.time_zone = "Pacific/Auckland"
    old, new = submit(alice, "old"), submit(alice, "new")
    ended(old, datetime(2026, 3, 1, 10, 30, tzinfo=UTC))
    ended(new, datetime(2026, 3, 1, 11, 30, tzinfo=UTC))
    today = timezone.now().astimezone(ZoneInfo("Pacific/Auckland")).date()
    waiting = submit(alice, "waiting")

    # There the second of March begins at 11:00 UTC.
    assert names(alice, "view=ended&since=2026-03-02")[0] == ["new"]
    assert names(alice, "view=ended&until=2026-03-01")[0] == ["old"]
    assert names(alice, f"since={today}")[0] == [waiting.name]
    assert names(alice, f"until={today - timedelta(days=1)}")[0] == []
    assert TaskFilter.parse("since=2026-02-30&until=0001-01-01&part=1").query() == ""


def test_the_tabs_count_what_each_view_shows(
    alice: User,
    charlie: User,
    example: Example,
    submit: Submit,
    run_in: RunIn,
    client_for: ClientFor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_in(submit(alice, "a-runs"), example.h100)
    for name in ("a-waits", "b-waits", "c-waits"):
        submit(alice, name)
    ended(submit(alice, "a-ended"), timezone.now())
    path = reverse("task_tabs")

    mine = text(client_for(alice).get(path))
    named = text(client_for(alice).get(path, {"name": "a-"}))
    hers = text(client_for(charlie).get(path))
    monkeypatch.setattr(selectors, "MOST_COUNTED", 2)
    monkeypatch.setattr(task_list, "MOST_COUNTED", 2)
    many = text(client_for(alice).get(path))

    assert words_of(mine) == "Active 4 Waiting 3 Running 1 Drafts 0 Ended 1 All 5"
    assert words_of(named) == "Active 2 Waiting 1 Running 1 Drafts 0 Ended 1 All 3"
    assert words_of(hers) == "Active 0 Waiting 0 Running 0 Drafts 0 Ended 0 All 0"
    assert words_of(many) == "Active 2+ Waiting 2+ Running 1 Drafts 0 Ended 1 All 2+"


def words_of(text: str) -> str:
    return " ".join(text.split())


def test_the_page_offers_the_filters_and_keeps_them(
    alice: User, root: User, example: Example, client_for: ClientFor
) -> None:
    Node.objects.create(name="n1", pool=example.h100)
    path = reverse("task_list")

    page = client_for(alice).get(path, {"tag": "night", "since": "2026-03-02"}).content.decode()

    assert 'name="tag" value="night"' in page
    assert 'name="since" value="2026-03-02"' in page
    assert 'name="node"' not in page
    assert 'name="node"' in client_for(root).get(path).content.decode()
    assert "tag=night&amp;since=2026-03-02" in page
    assert "No task matches the filters" in page
