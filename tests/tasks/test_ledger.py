"""What the database itself keeps true of the ledger, whoever writes to it."""

from typing import Any

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.tasks.models import Holding
from tests.allocation.state import enqueue, make_node
from tests.cast import Example

pytestmark = pytest.mark.django_db


@pytest.fixture
def holding(example: Example, alice: User) -> Holding:
    make_node(example.bare_metal, name="b1")
    enqueue(alice, example.dev_queue)
    run_pass()
    row = Holding.objects.get()
    change(row, boot_id="one", lease_until_s=100.0)
    return row


def change(holding: Holding, **values: Any) -> None:
    with transaction.atomic():
        Holding.objects.filter(pk=holding.pk).update(**values)


@pytest.mark.parametrize(
    ("values", "want_refused"),
    [
        pytest.param({"lease_until_s": 101.0}, False, id="longer"),
        pytest.param({"lease_until_s": 99.0}, True, id="shorter"),
        pytest.param({"lease_until_s": None}, True, id="taken back"),
        pytest.param({"boot_id": "two", "lease_until_s": 5.0}, False, id="of another boot"),
    ],
)
def test_a_lease_only_gets_longer_while_the_boot_is_the_same(
    holding: Holding, values: dict[str, Any], want_refused: bool
) -> None:
    if want_refused:
        with pytest.raises(DatabaseError, match="leases never get shorter"):
            change(holding, **values)
    else:
        change(holding, **values)


def test_what_was_released_stays_released(holding: Holding) -> None:
    change(holding, released_at=timezone.now())

    with pytest.raises(DatabaseError, match="what was released stays so"):
        change(holding, released_at=None)
