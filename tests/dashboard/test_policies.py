"""Policies as people see them, through HTTP: the list, one policy, and who finds what."""

import re

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.accounts.models import User
from apps.allocation.whatif.start_counts import StartCount
from apps.configuration.services.policies import policy_change, policy_create
from apps.configuration.services.queues import profile_connect, profile_disconnect
from apps.dashboard.cards.policies import policy_rows
from apps.dashboard.cards.start_rows import start_rows
from apps.dashboard.render import card_render
from apps.policies.models import Policy, Queue
from apps.tasks.models import Task
from tests.allocation.state import make_node
from tests.dashboard.conftest import ClientFor, RunIn, Submit
from tests.dashboard.page_reader import text
from tests.people import Example

pytestmark = pytest.mark.django_db


def names_in_order(client: Client, query: str) -> list[str]:
    """The policies of the list, from top to bottom."""
    html = client.get(f"{reverse('policy_list')}?{query}").content.decode()
    return re.findall(r'<a href="/policies/\d+/"[^>]*title="([^"]+)"', html)


# --- the list ---------------------------------------------------------------------------------


def test_the_list_takes_the_same_queries_with_5_and_with_200_policies(
    example: Example, root: User, dev_group: Group, client_for: ClientFor
) -> None:
    client = client_for(root)

    def grow(to: int) -> None:
        for number in range(Policy.objects.count(), to):
            policy = policy_create(actor=root, name=f"team {number}", group=dev_group)
            profile_connect(actor=root, policy=policy, profile=example.profile)

    def asked() -> int:
        client.get(reverse("policy_list"))
        with CaptureQueriesContext(connection) as queries:
            client.get(reverse("policy_list"))
        return len(queries)

    grow(to=5)
    few = asked()
    grow(to=200)

    assert asked() == few
    assert few <= 25


def test_the_list_is_a_tree_and_sorting_keeps_everybody_below_their_parent(
    example: Example,
    root: User,
    alice: User,
    charlie: User,
    dev_group: Group,
    client_for: ClientFor,
    submit: Submit,
) -> None:
    top = policy_create(actor=root, name="Laboratory", group=dev_group)
    policy_change(actor=root, policy=example.research, changes={"parent": top})
    for number in range(3):
        submit(charlie, f"r{number}", queue=example.research_queue.name)
    submit(alice, "one")
    client = client_for(root)

    assert names_in_order(client, "") == ["Dev", "Laboratory", "Research"]
    assert names_in_order(client, "sort=waiting") == ["Laboratory", "Research", "Dev"]
    page = client.get(f"{reverse('policy_list')}?sort=waiting").content.decode()
    assert page.count('aria-sort="descending"') == 1
    assert "below Laboratory" in page
    assert "depth-1" in page


def test_sorting_by_over_quota_puts_the_largest_first(
    example: Example,
    root: User,
    charlie: User,
    client_for: ClientFor,
    submit: Submit,
    run_in: RunIn,
) -> None:
    for number in range(3):
        task = submit(charlie, f"r{number}", queue=example.research_queue.name)
        run_in(task, example.h100)

    assert names_in_order(client_for(root), "sort=over") == ["Research", "Dev"]


def test_the_filter_finds_names_and_groups_and_says_when_nothing_matches(
    example: Example, root: User, client_for: ClientFor
) -> None:
    client = client_for(root)
    top = policy_create(actor=root, name="Laboratory", group=Group.objects.get(name="dev"))
    policy_change(actor=root, policy=example.research, changes={"parent": top})

    assert names_in_order(client, "name=RESEARCH") == ["Laboratory", "Research"]
    assert names_in_order(client, "name=dev") == ["Dev", "Laboratory"]
    nothing = text(client.get(f"{reverse('policy_list')}?name=nowhere"))
    assert "No policy matches “nowhere”" in nothing
    assert "Clear filter" in nothing


def test_the_list_says_for_what_tasks_wait(
    example: Example, root: User, alice: User, client_for: ClientFor, submit: Submit
) -> None:
    submit(alice, "one")
    run = Task.objects.get().task_group
    assert run is not None
    run.reason_code = "limit"
    run.save()

    page = text(client_for(root).get(reverse("policy_list")))

    assert "Why they wait 1 limit" in page


# --- who sees what ----------------------------------------------------------------------------


def test_only_administrators_find_what_changes_policies(
    example: Example, alice: User, quinn: User, charlie: User, client_for: ClientFor
) -> None:
    dev, queue = example.dev.pk, example.dev_queue.pk
    paths = [
        reverse("policy_new"),
        reverse("policy_edit", args=[dev]),
        reverse("policy_connect", args=[dev]),
        reverse("policy_queue_name", args=[dev]),
        reverse("policy_disconnect", args=[dev, queue]),
        reverse("policy_pause", args=[dev]),
        reverse("policy_delete", args=[dev]),
    ]
    for person in (alice, quinn, charlie):
        client = client_for(person)
        for path in paths:
            assert client.get(path).status_code == 404, (person, path)
            assert client.post(path, {"name": "Dev"}).status_code in {404, 405}, (person, path)
    assert Queue.objects.get(pk=queue).removed_at is None
    assert Policy.objects.get(pk=dev).removed_at is None


def test_a_member_sees_neither_edit_nor_pool_links(
    example: Example, alice: User, root: User, client_for: ClientFor
) -> None:
    path = reverse("policy_detail", args=[example.dev.pk])
    page, of_admin = client_for(alice).get(path), client_for(root).get(path)

    assert "/edit/" not in page.content.decode()
    assert "Routing order" not in text(page)
    assert "/edit/" in of_admin.content.decode()
    listed = client_for(alice).get(reverse("policy_list")).content.decode()
    assert "/policies/new/" not in listed


def test_others_find_nothing_of_a_policy(
    example: Example, charlie: User, client_for: ClientFor
) -> None:
    for name in ("policy_detail", "policy_can_start", "policy_history"):
        response = client_for(charlie).get(reverse(name, args=[example.dev.pk]))

        assert response.status_code == 404


def test_permissions_vanish_with_leaving_the_group(
    example: Example, bob: User, dev_group: Group, client_for: ClientFor
) -> None:
    client = client_for(bob)
    paths = [
        reverse("policy_detail", args=[example.dev.pk]),
        reverse("policy_history", args=[example.dev.pk]),
        reverse("queue_detail", args=[example.dev_queue.pk]),
    ]
    assert [client.get(path).status_code for path in paths] == [200, 200, 200]

    bob.groups.remove(dev_group)

    assert [client.get(path).status_code for path in paths] == [404, 404, 404]


def test_permissions_on_a_queue_vanish_with_the_queue(
    example: Example, root: User, bob: User, client_for: ClientFor
) -> None:
    profile_disconnect(actor=root, queue=example.dev_queue)

    client = client_for(bob)
    page = text(client.get(reverse("policy_detail", args=[example.dev.pk])))
    assert example.dev_queue.name not in page
    assert client.get(reverse("queue_detail", args=[example.dev_queue.pk])).status_code == 404


def test_the_page_names_the_people_of_the_group_to_its_members(
    example: Example, alice: User, bob: User, client_for: ClientFor
) -> None:
    page = text(client_for(alice).get(reverse("policy_detail", args=[example.dev.pk])))

    assert "2 people in dev" in page
    assert "alice bob" in page


# --- the page ---------------------------------------------------------------------------------


def test_the_largest_task_that_holds_something_comes_first(
    example: Example,
    alice: User,
    bob: User,
    client_for: ClientFor,
    submit: Submit,
    run_in: RunIn,
) -> None:
    run_in(submit(alice, "small"), example.h100, gpu=1000)
    run_in(submit(alice, "large"), example.h100, gpu=4000)

    card = card_render("policy_tasks", str(example.dev.pk), bob)

    assert card is not None
    assert card.html.index("large") < card.html.index("small")


def test_what_runs_below_a_policy_stands_on_its_page_too(
    example: Example, root: User, alice: User, submit: Submit, run_in: RunIn
) -> None:
    above = policy_create(actor=root, name="Company", group=example.dev.group)
    policy_change(actor=root, policy=example.dev, changes={"parent": above})
    run_in(submit(alice, "below"), example.h100)

    card = card_render("policy_card", str(above.pk), root)
    tasks_card = card_render("policy_tasks", str(above.pk), root)

    assert card is not None
    assert f"policy.{example.dev.pk}" in card.topics
    assert tasks_card is not None
    assert f"policy.{example.dev.pk}" in tasks_card.topics
    assert "below" in tasks_card.html


def test_bar_and_figures_of_a_department_are_held_against_its_own_reservation(
    example: Example,
    root: User,
    charlie: User,
    dev_group: Group,
    client_for: ClientFor,
    submit: Submit,
    run_in: RunIn,
) -> None:
    top = policy_create(
        actor=root, name="Laboratory", group=dev_group, reserved={"gpu": 16}, limit={"gpu": 32}
    )
    changes = {"parent": top, "reserved": {}, "limit": {}}
    policy_change(actor=root, policy=example.research, changes=changes)
    for number in range(3):
        task = submit(charlie, f"r{number}", queue=example.research_queue.name)
        run_in(task, example.h100)

    rows = {row.policy.name: row for row in policy_rows(Policy.objects.all())}
    listed = text(client_for(root).get(reverse("policy_list")))
    tasks_card = card_render("policy_tasks", str(top.pk), root)
    task = Task.objects.get(name="r2")
    shown = text(client_for(charlie).get(reverse("task_detail", args=[task.pk])))

    laboratory, research = rows["Laboratory"], rows["Research"]
    assert (laboratory.usage.reserved, laboratory.usage.over_quota) == (12000, 0)
    assert [part.kind for part in laboratory.bar.segments] == ["res", "claim"]
    assert "12 within the reservation of 16" in laboratory.bar.label
    assert (research.usage.reserved, research.usage.over_quota) == (0, 12000)
    assert "12 reserved 0 over quota 24 GPU reserved in total, 12 of them not in use" in listed
    assert tasks_card is not None
    assert "Over quota" not in tasks_card.html.partition("<tbody>")[2]
    of_team = card_render("policy_tasks", str(example.research.pk), root)
    assert of_team is not None
    assert "Over quota" not in of_team.html.partition("<tbody>")[2]
    assert "12 beyond own reservation" in research.bar.label
    assert "Beyond own reservation" in listed
    assert "Reserved: no other team" in shown


def test_a_department_without_queues_of_its_own_shows_those_of_its_teams(
    example: Example, root: User, alice: User, charlie: User, dev_group: Group, submit: Submit
) -> None:
    top = policy_create(actor=root, name="Laboratory", group=dev_group)
    policy_change(actor=root, policy=example.research, changes={"parent": top})
    submit(charlie, "waits", queue=example.research_queue.name)

    card = card_render("policy_card", str(top.pk), root)
    hers = card_render("policy_card", str(top.pk), alice)

    assert card is not None
    assert "No profile connected" not in card.html
    assert f'href="/policies/{example.research.pk}/"' in card.html
    assert hers is not None
    assert f'href="/policies/{example.research.pk}/"' not in hers.html


def test_a_member_sees_what_of_a_queue_is_theirs(
    example: Example, alice: User, bob: User, submit: Submit, run_in: RunIn
) -> None:
    run_in(submit(alice, "runs"), example.h100)
    submit(alice, "waits")
    submit(bob, "waits too")

    hers = card_render("policy_card", str(example.dev.pk), alice)
    his = card_render("policy_card", str(example.dev.pk), bob)

    assert hers is not None
    assert his is not None
    assert hers.html.count("1 yours") == 2
    assert his.html.count("1 yours") == 1


def test_the_second_and_the_twentieth_policy_of_a_profile_are_served_in_their_order(
    example: Example, root: User, dev_group: Group, client_for: ClientFor
) -> None:
    made = [
        policy_create(actor=root, name=f"team {number}", group=dev_group) for number in range(18)
    ]
    for policy in made:
        profile_connect(actor=root, policy=policy, profile=example.profile)
    client = client_for(root)

    second = text(client.get(reverse("policy_detail", args=[example.research.pk])))
    last = text(client.get(reverse("policy_detail", args=[made[-1].pk])))

    assert "Served 2nd of 20" in second
    assert "Served 20th of 20" in last


def test_the_queue_says_its_name_and_id_to_be_copied(
    example: Example, bob: User, client_for: ClientFor
) -> None:
    html = client_for(bob).get(reverse("policy_detail", args=[example.dev.pk])).content.decode()

    assert f'data-copy="{example.dev_queue.name}"' in html
    assert f'data-copy="{example.dev_queue.pk}"' in html


def test_what_can_start_says_how_many_why_not_more_and_which_limit_is_next(
    example: Example, alice: User, client_for: ClientFor, submit: Submit, run_in: RunIn
) -> None:
    path = reverse("policy_can_start", args=[example.dev.pk])
    client = client_for(alice)
    nothing = text(client.get(path))
    make_node(example.h100, name="h1")
    one_or_two = text(client.get(path))
    make_node(example.bare_metal, name="b1")
    run_in(submit(alice, "runs"), example.h100)
    three = text(client.get(path))

    assert re.search(r"0 4xGPU Would wait\. Nothing serves", nothing)
    assert "2 4xGPU 2 tasks start at once. Then: " in one_or_two
    assert "Next comes the limit of 16 GPUs of Dev: it allows 4 tasks." in one_or_two
    assert "3 4xGPU 3 tasks start at once. Then: Dev uses 16 GPUs of its limit of 16" in three
    assert not Task.objects.filter(state="queued").exists()


def test_what_needs_others_to_stop_does_not_start_at_once(example: Example) -> None:
    found = [StartCount(example.dev_queue, *counts, None, 64, "") for counts in ((0, 64), (10, 54))]

    some, none = start_rows(found)

    assert (none.number, none.kind) == ("64+", "wait")
    assert none.head == "64 tasks and more start once others have stopped."
    assert (some.number, some.kind) == ("64+", "ok")
    assert some.head == "10 tasks start at once, 54 and more once others have stopped."
