"""Figures of pages lead to what they count, and count it once."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.auth.models import Group
from django.utils import timezone
from guardian.shortcuts import assign_perm

from apps.access.selectors import policies_visible_to
from apps.accounts.models import User
from apps.configuration.services.policies import policy_change, policy_create
from apps.dashboard.cards.overview import Overview, load_overview
from apps.dashboard.cards.policies import policy_rows
from apps.dashboard.cards.policy_own_usage import PolicyOwnUsage, load_policy_own_usage
from apps.dashboard.cards.task_list import TaskList, load_task_list
from apps.dashboard.render import card_render
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.dashboard.page_reader import text
from tests.page_words import words_on
from tests.people import Example

pytestmark = pytest.mark.django_db


def test_a_command_is_shown_with_the_quotes_that_a_shell_needs(
    alice: User, client_for: ClientFor, submit: Submit
) -> None:
    task = submit(alice, "quoted", command=["sh", "-c", "echo one two; sleep 5"])

    page = text(client_for(alice).get(f"/tasks/{task.pk}/"))

    assert "sh -c &#x27;echo one two; sleep 5&#x27;" in page


def test_settings_lead_to_the_first_of_their_pages(alice: User, client_for: ClientFor) -> None:
    assert client_for(alice).get("/settings/")["Location"] == "/settings/account/"


def test_a_waiting_task_counts_once_over_all_pools_and_figures_are_links(
    example: Example, root: User, alice: User, client_for: ClientFor, submit: Submit
) -> None:
    for number in range(3):
        submit(alice, f"t{number}")

    page = client_for(root).get("/").content.decode()
    overview = card_render("overview", "", root)
    dev = f"/tasks/?view=waiting&amp;policy={example.dev.pk}"

    assert overview is not None
    found = re.findall(r'k-pool.*?data-num="waiting">(\d+)<', overview.html, re.DOTALL)
    assert sorted(found) == ["0", "3"]
    assert re.search(r'data-num="waiting"\s+href="/tasks/\?view=waiting"\s*>3</a>', page)
    assert dev in page


def test_the_tasks_of_a_department_are_those_of_its_teams(
    example: Example,
    root: User,
    charlie: User,
    dev_group: Group,
    client_for: ClientFor,
    submit: Submit,
) -> None:
    top = policy_create(actor=root, name="Laboratory", group=dev_group)
    policy_change(actor=root, policy=example.research, changes={"parent": top})
    submit(charlie, "below", queue=example.research_queue.name)

    assert "below" in text(client_for(root).get(f"/tasks/?view=waiting&policy={top.pk}"))


def test_own_tasks_of_a_department_are_those_of_its_teams(
    example: Example, root: User, charlie: User, research_group: Group, submit: Submit
) -> None:
    top = policy_create(actor=root, name="Laboratory", group=research_group)
    policy_change(actor=root, policy=example.research, changes={"parent": top})
    submit(charlie, "below", queue=example.research_queue.name)

    own = load_policy_own_usage(charlie, str(top.pk))

    assert isinstance(own, PolicyOwnUsage)
    assert (own.waiting_count, own.waiting[0].task.name) == (1, "below")
    assert f"policy.{example.research.pk}" in own.topics


@pytest.fixture
def busy(
    example: Example,
    root: User,
    alice: User,
    bob: User,
    charlie: User,
    submit: Submit,
    run_in: RunIn,
) -> None:
    """Dev has 8 GPUs reserved and holds 12, in two pools; Research holds 4; three tasks wait."""
    at = timezone.now()
    for minutes, (name, pool) in enumerate(
        [("a", example.h100), ("b", example.bare_metal), ("c", example.bare_metal)]
    ):
        run_in(submit(alice, name), pool, since=at + timedelta(minutes=minutes))
    run_in(submit(charlie, "r", queue=example.research_queue.name), example.h100, since=at)
    for name in ("x", "y", "z"):
        submit(bob, name)


def links_of(html: str) -> list[tuple[str, str, str]]:
    """Name, text and query of every figure that links to the list of tasks."""
    found = re.findall(
        r'<a[^>]*?href="/tasks/\?([^"]*)"[^>]*>(?:(?!</a>).)*?data-num="([^"]*)">([^<]*)<|'
        r'<a[^>]*?data-num="([^"]*)"[^>]*?href="/tasks/\?([^"]*)"[^>]*>([^<]*)<',
        html,
        re.DOTALL,
    )
    return [(b or d, c or f, unescape(a or e)) for a, b, c, d, e, f in found]


def wrong_figures(user: User, html: str) -> list[str]:
    """Figures that differ from the list behind them: in tasks, or in GPUs that these hold."""
    wrong = []
    for name, said, query in links_of(html):
        listed = load_task_list(user, query)
        assert isinstance(listed, TaskList)
        tasks = len(listed.rows)
        is_count = name.startswith(("running", "waiting", "own-", "r-", "w-", "tasks"))
        if int(said.split()[-2] if name == "tasks" else said) != (tasks if is_count else 4 * tasks):
            wrong.append(f"{name}: {said}, but {tasks} tasks at {query}")
    return wrong


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    ("card", "want_links"), [("overview", 16), ("policy_rows", 11), ("resource_board", 22)]
)
def test_every_figure_leads_to_exactly_the_tasks_that_it_counts(
    card: str, want_links: int, root: User
) -> None:
    found = card_render(card, "", root)

    assert found is not None
    assert wrong_figures(root, found.html) == []
    assert len(links_of(found.html)) == want_links


@pytest.mark.usefixtures("busy")
def test_a_member_s_figures_count_their_own_reservation(example: Example, alice: User) -> None:
    overview = card_render("overview", "", alice)
    policy = card_render("policy_card", str(example.dev.pk), alice)

    assert overview is not None
    assert policy is not None
    assert wrong_figures(alice, overview.html + policy.html) == []
    assert {("over", "4", "view=running&quota=over")} <= set(links_of(overview.html))


@pytest.mark.usefixtures("busy")
def test_pools_have_links_only_for_those_who_see_every_task_in_them(
    example: Example, bob: User, root: User
) -> None:
    assign_perm("policies.view_pool", bob, example.h100)

    overview, board = (card_render(name, "", bob) for name in ("overview", "resource_board"))

    assert overview is not None
    assert board is not None
    assert "H100" in overview.html
    assert "quota=" not in overview.html + board.html
    assert wrong_figures(bob, overview.html + board.html) == []


@pytest.mark.usefixtures("busy")
def test_a_pool_that_a_member_does_not_see_finds_them_no_task(
    example: Example, alice: User, root: User, client_for: ClientFor
) -> None:
    query = f"view=running&pool={example.h100.pk}"

    names = [
        [row.task.name for row in listed.rows]
        for reader in (alice, root)
        if isinstance(listed := load_task_list(reader, query), TaskList)
    ]

    assert names == [[], ["r", "a"]]
    assert words_on(text(client_for(alice).get(f"/tasks/?{query}")), "H100") == []
    assert "H100 Half a Superpod Show all again" in text(client_for(root).get(f"/tasks/?{query}"))


def test_of_many_policies_the_overview_shows_the_busiest_in_their_order(
    example: Example,
    dev_group: Group,
    bob: User,
    root: User,
    submit: Submit,
    run_in: RunIn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("apps.dashboard.cards.overview.MOST_POLICIES", 2)
    for name in ("Quiet", "Waits"):
        policy_create(actor=root, name=name, group=dev_group)
    run_in(submit(bob, "runs", queue=example.dev_queue.name), example.h100)

    found = load_overview(root, "")
    page = card_render("overview", "", root)

    assert isinstance(found, Overview)
    every = [row.policy.name for row in policy_rows(policies_visible_to(root))]
    shown = [one.row.policy.name for one in found.policies]
    assert shown == [name for name in every if name in shown]
    assert ("Dev" in shown, len(shown), found.more_policies) == (True, 2, len(every) - 2)
    assert page is not None
    assert f"has {len(every) - 2} more" in page.html
