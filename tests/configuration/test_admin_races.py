"""A form of the admin site is compared with what is stored once nobody else is writing it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.contrib.messages import get_messages
from django.db import transaction
from django.db.models import Model
from django.test import Client

from apps.accounts.models import User
from apps.accounts.services.groups import group_members_add
from apps.configuration.services.draft_rows import draft_rows_save
from apps.configuration.services.policies import policy_change
from apps.policies.models import DraftPool
from tests.configuration.site import form_of, url
from tests.configuration.test_admin_stale_forms import WORDS
from tests.configuration.test_membership_races import ConcurrentWork
from tests.people import Example

pytestmark = [pytest.mark.postgres_only, pytest.mark.django_db(transaction=True)]


def _policy(root: User, example: Example, _: User) -> tuple[Model, Callable[[], object]]:
    row = example.dev
    return row, lambda: policy_change(actor=root, policy=row, changes={"weight": 9})


def _draft_pool(root: User, _: Example, __: User) -> tuple[Model, Callable[[], object]]:
    row = DraftPool.objects.earliest("pk")
    changed = DraftPool.objects.get(pk=row.pk)
    changed.capacity = {"gpu": "16"}
    return row, lambda: draft_rows_save(actor=root, rows=[changed])


def _group(root: User, _: Example, charlie: User) -> tuple[Model, Callable[[], object]]:
    row = Group.objects.get(name="dev")
    return row, lambda: group_members_add(actor=root, group=row, users=[charlie])


@pytest.mark.parametrize("change", [_policy, _draft_pool, _group])
def test_a_form_waits_for_another_writer_and_is_refused(
    site: Client, root: User, example: Example, charlie: User, change: Any
) -> None:
    row, write = change(root, example, charlie)
    address = url(type(row), "change", row.pk)
    form = form_of(site, address) | {"description": "From long ago"}

    with transaction.atomic():
        write()
        sent = ConcurrentWork(lambda: site.post(address, form))
        sent.begin()
    answer: Any = sent.end()

    assert [str(one) for one in get_messages(answer.wsgi_request)] == [WORDS]
    assert form_of(site, address).get("description", "") != "From long ago"
