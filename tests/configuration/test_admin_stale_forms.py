"""Two people have the same form of the admin site open: the second save is refused."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.contrib.messages import get_messages
from django.db.models import Model
from django.test import Client

from apps.accounts.models import User
from apps.nodes.models import Node, NodeState, Volume
from apps.policies.models import DraftPool, DraftProfile, DraftState, Policy, Queue
from apps.policies.selectors import limit_exceeders
from tests.allocation.state import make_node
from tests.configuration.site import form_of, url
from tests.people import Example

pytestmark = pytest.mark.django_db

WORDS = "This has changed since you opened it. Reload the page and try again."


def saved(site: Client, row: Model, data: dict[str, Any]) -> list[str]:
    """The messages to the sender of the form."""
    answer = site.post(url(type(row), "change", row.pk), data)
    assert answer.status_code == 302, answer.context["errors"]
    return [str(message) for message in get_messages(answer.wsgi_request)]


def opened(site: Client, row: Model) -> dict[str, Any]:
    return form_of(site, url(type(row), "change", row.pk))


def test_a_policy_keeps_what_somebody_else_saved(site: Client, example: Example) -> None:
    first, second = opened(site, example.dev), opened(site, example.dev)

    saved(site, example.dev, second | {"weight": "9", "logs_open_to_group": "on"})
    messages = saved(site, example.dev, first | {"description": "Builders"})

    example.dev.refresh_from_db()
    assert messages[-1] == WORDS
    assert (example.dev.weight, example.dev.logs_open_to_group) == (9, True)
    assert example.dev.description == ""


def test_who_may_exceed_a_limit_meanwhile_stays(
    site: Client, example: Example, alice: User, bob: User
) -> None:
    first, second = opened(site, example.dev), opened(site, example.dev)
    one = {"policyuserpermission_set-TOTAL_FORMS": "1"}

    saved(site, example.dev, second | one | {"policyuserpermission_set-0-user": alice.pk})
    messages = saved(site, example.dev, first | one | {"policyuserpermission_set-0-user": bob.pk})

    assert messages[-1] == WORDS
    assert list(limit_exceeders(example.dev)[0]) == [alice]


def test_a_draft_pool_keeps_its_capacity_and_its_order(site: Client, example: Example) -> None:
    pool = DraftPool.objects.earliest("pk")
    first, second = opened(site, pool), opened(site, pool)
    version = DraftState.objects.get().version

    saved(site, pool, second | {"capacity": '{"gpu": "16"}'})
    messages = saved(site, pool, first | {"description": "Fast"})
    reordered = opened(site, pool)
    saved(site, pool, opened(site, pool) | {"links-0-execution_rank": "9"})
    again = saved(site, pool, reordered | {"description": "Fast"})

    pool.refresh_from_db()
    assert (messages[-1], again[-1]) == (WORDS, WORDS)
    assert (pool.capacity, pool.description) == ({"gpu": "16"}, "")
    assert DraftState.objects.get().version == version + 2


def test_who_joined_a_group_meanwhile_stays_in_it(
    site: Client, alice: User, charlie: User, dev_group: Group
) -> None:
    form = opened(site, dev_group)
    charlie.groups.add(dev_group)

    messages = saved(site, dev_group, form | {"description": "The builders."})

    assert messages[-1] == WORDS
    assert sorted(user.username for user in dev_group.user_set.all()) == ["alice", "charlie"]


def test_a_person_keeps_groups_and_names(
    site: Client, alice: User, dev_group: Group, research_group: Group
) -> None:
    form = opened(site, alice)
    alice.groups.add(research_group)

    messages = saved(site, alice, form | {"first_name": "Ada"})

    assert messages[-1] == WORDS
    assert alice.groups.filter(pk=research_group.pk).exists()


def test_a_form_that_does_not_say_what_it_showed_is_not_saved(
    site: Client, example: Example
) -> None:
    form = opened(site, example.dev)
    del form["shown"]

    assert saved(site, example.dev, form | {"weight": "7"})[-1] == WORDS


def test_a_form_with_errors_still_tells_what_it_showed(site: Client, example: Example) -> None:
    form = opened(site, example.dev)
    Policy.objects.filter(pk=example.dev.pk).update(weight=9)

    wrong = site.post(url(Policy, "change", example.dev.pk), form | {"name": ""})

    assert wrong.context["shown"] == form["shown"]


def test_what_is_only_shown_may_change_meanwhile(site: Client, example: Example) -> None:
    node = make_node(example.h100, name="h1", gpus=2)
    policy_form, node_form = opened(site, example.dev), opened(site, node)
    Queue.objects.filter(policy=example.dev).update(allow_over_quota=False, grace_s=99)
    Node.objects.filter(pk=node.pk).update(state=NodeState.SUSPECT)
    node.devices.update(state="lost")

    of_policy = saved(site, example.dev, policy_form | {"weight": "7"})
    of_node = saved(site, node, node_form | {"labels": '{"rack": "4"}'})

    example.dev.refresh_from_db()
    node.refresh_from_db()
    assert WORDS not in (*of_policy, *of_node)
    assert (example.dev.weight, node.labels) == (7, {"rack": "4"})


def test_every_form_can_be_saved_as_it_was_shown(
    site: Client, root: User, dev_group: Group, example: Example
) -> None:
    rows: list[Model] = [
        *(root, dev_group, example.dev, example.dev_queue, make_node(example.h100, name="h1")),
        *(DraftPool.objects.earliest("pk"), DraftProfile.objects.earliest("pk")),
        *(DraftState.objects.get(), Volume.objects.create(name="data", path="/data")),
    ]

    for row in rows:
        assert WORDS not in saved(site, row, opened(site, row)), row
