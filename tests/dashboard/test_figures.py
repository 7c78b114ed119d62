"""Figures of pages lead to what they count, and count it once."""

import re

import pytest
from django.contrib.auth.models import Group

from apps.accounts.models import User
from apps.configuration.services.policies import policy_change, policy_create
from apps.dashboard.cards.mine import PolicyMine, load_policy_mine
from apps.dashboard.render import card_render
from tests.cast import Example
from tests.dashboard.conftest import ClientFor, Submit
from tests.dashboard.reading import text

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
    assert re.search(r'data-num="waiting" href="/tasks/\?view=waiting">3</a>', page)
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

    mine = load_policy_mine(charlie, str(top.pk))

    assert isinstance(mine, PolicyMine)
    assert (mine.waiting_count, mine.waiting[0].task.name) == (1, "below")
    assert f"policy.{example.research.pk}" in mine.topics
