"""Two workers that see to the same budgets at once."""

import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection, connections

from apps.accounts.models import User
from apps.configuration.services.policies import policy_change
from apps.events.models import Event
from apps.policies.models import PolicySpending
from apps.tasks.models import Attempt
from apps.usage.services.budgets import budgets_update
from apps.usage.services.rates import rate_create
from tests.allocation.state import apply, decided, enqueue, make_node
from tests.people import Example

pytestmark = pytest.mark.django_db(transaction=True)

BEGIN = datetime(2026, 11, 10, tzinfo=UTC)
WORKERS = 4


@pytest.mark.skipif(connection.vendor != "postgresql", reason="one writer at a time")
@pytest.mark.parametrize("is_first", [True, False])
def test_of_runs_at_once_one_gives_notice(
    example: Example, alice: User, root: User, *, is_first: bool
) -> None:
    rate_create(actor=root, price=Decimal(10), valid_from=BEGIN - timedelta(hours=1))
    make_node(example.h100, name="h1")
    enqueue(alice, example.dev_queue)
    apply(*decided())
    Attempt.objects.update(allocated_at=BEGIN, started_at=BEGIN)
    policy_change(actor=root, policy=example.dev, changes={"budget": Decimal(50)})
    policy_change(actor=root, policy=example.research, changes={"budget": Decimal(50)})
    if not is_first:
        budgets_update(now=BEGIN)
    start, counts = threading.Barrier(WORKERS), list[int]()

    def work(number: int) -> None:
        try:
            start.wait(20)
            moment = BEGIN + timedelta(hours=3, milliseconds=number)
            counts.append(budgets_update(now=moment))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=[number]) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert sorted(counts) == [0, 0, 0, 1]
    assert Event.objects.filter(kind="policy.budget_spent").count() == 1
    last = BEGIN + timedelta(hours=3, milliseconds=WORKERS - 1)
    assert set(PolicySpending.objects.values_list("at", flat=True)) == {last}
