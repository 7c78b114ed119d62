"""What policies held over days: the sums of each hour, and what is not summed up yet."""

from datetime import timedelta

import pytest
from django.utils import timezone

from apps.accounts.models import User
from apps.tasks.lifecycle.states import AttemptTier
from apps.tasks.models import Attempt
from apps.usage.models import PolicyHour
from apps.usage.selectors.labels import UsageGroup
from apps.usage.selectors.usage_history import HistoryScope, usage_history
from apps.usage.services.sums import usage_book
from tests.allocation.state import apply, decided, enqueue, latest, make_node
from tests.people import Example

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.mark.parametrize("by", [UsageGroup.POLICY, UsageGroup.POOL, UsageGroup.TIER])
@pytest.mark.parametrize("is_booked", [False, True])
def test_all_hours_together_are_what_was_held(
    by: UsageGroup, is_booked: bool, example: Example, alice: User
) -> None:
    make_node(example.h100, name="h1")
    ended, live = enqueue(alice, example.dev_queue, 2)
    apply(*decided())
    now = timezone.now()
    for task, since, until in ((ended, 100, 70.25), (live, 50.5, None)):
        Attempt.objects.filter(pk=latest(task).pk).update(
            allocated_at=now - since * HOUR,
            ended_at=None if until is None else now - until * HOUR,
            request={"gpu": 4000},
            tier=AttemptTier.RESERVED,
        )
    if is_booked:
        assert usage_book(now=now) == 2

    found = usage_history(by, HistoryScope([example.dev.pk]), until=now, hours=7 * 24)

    [values] = found.values.values()
    hours = (now - found.began) / HOUR
    held = 4 * (29.75 + 50.5) if hours > 90 else 4 * 50.5
    assert sum(values) / 1000 * hours / len(values) == pytest.approx(held, rel=0.01)
    assert values[-1] == values[-20] == 4000
    other = HistoryScope([example.research.pk])
    assert usage_history(by, other, until=now, hours=7 * 24).values == {}


def test_tasks_that_are_removed_stay_in_it(example: Example, alice: User) -> None:
    now = timezone.now().replace(minute=0, second=0, microsecond=0)
    for hours in (10, 20, 30):
        PolicyHour.objects.create(
            at=now - hours * HOUR, policy=example.dev, pool=example.h100, held=8 * 3_600_000_000
        )

    scope = HistoryScope([example.dev.pk])
    [values] = usage_history(UsageGroup.POLICY, scope, until=now, hours=7 * 24).values.values()

    assert sum(values) / 1000 * 7 * 24 / 96 == pytest.approx(24, rel=0.001)
