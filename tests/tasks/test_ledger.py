"""Constraints of the ledger in the database, for every writer."""

from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.tasks.models import Member
from tests.allocation.state import enqueue, make_node
from tests.people import Example

pytestmark = pytest.mark.django_db


@pytest.fixture
def member(example: Example, alice: User) -> Member:
    make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue)
    run_pass()
    row = Member.objects.get()
    change(row, boot_id="one", lease_until_s=100.0)
    return row


def change(member: Member, **values: Any) -> None:
    with transaction.atomic():
        Member.objects.filter(pk=member.pk).update(**values)


@pytest.mark.parametrize(
    ("values", "want_refused"),
    [
        pytest.param({"lease_until_s": 101.0}, False, id="longer"),
        pytest.param({"lease_until_s": 99.0}, True, id="shorter"),
        pytest.param({"lease_until_s": None}, True, id="removed"),
        pytest.param({"boot_id": "two", "lease_until_s": 5.0}, False, id="of another boot"),
    ],
)
def test_a_lease_only_gets_longer_while_the_boot_is_the_same(
    member: Member, values: dict[str, Any], want_refused: bool
) -> None:
    if want_refused:
        with pytest.raises(DatabaseError, match="leases never get shorter"):
            change(member, **values)
    else:
        change(member, **values)


def test_what_was_released_stays_released(member: Member) -> None:
    change(member, released_at=timezone.now())

    with pytest.raises(DatabaseError, match="what was released stays so"):
        change(member, released_at=None)
