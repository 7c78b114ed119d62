"""The tier of a running attempt is kept with the time of each change."""

import pytest

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.configuration.services.policies import policy_change
from apps.core import clock
from apps.tasks.lifecycle.states import AttemptTier
from apps.tasks.models import Attempt, PastTier
from apps.usage.models import PolicyDay
from apps.usage.services.sums import usage_book
from apps.usage.services.tiers import tiers_refresh
from tests.allocation.state import begin, end, enqueue, latest, make_node
from tests.people import Example

pytestmark = pytest.mark.django_db


def test_a_smaller_reservation_makes_running_work_over_quota(
    example: Example, alice: User, root: User
) -> None:
    make_node(example.h100, name="h1")
    (task,) = enqueue(alice, example.dev_queue)
    run_pass()
    attempt = latest(task)
    assert attempt.tier == AttemptTier.RESERVED
    begin(attempt)
    assert tiers_refresh() == 0

    policy_change(actor=root, policy=example.dev, changes={"reserved": {"gpu": 0}})
    before = clock.now()

    assert tiers_refresh() == 1
    assert tiers_refresh() == 0

    attempt.refresh_from_db()
    past = PastTier.objects.get(attempt=attempt)
    assert (attempt.tier, past.tier) == (AttemptTier.OVER_QUOTA, AttemptTier.RESERVED)
    assert before <= past.until <= clock.now()

    end(attempt, code=0)
    usage_book()
    tiers = dict(PolicyDay.objects.values_list("tier", "held"))
    assert set(tiers) == {AttemptTier.RESERVED, AttemptTier.OVER_QUOTA}
    assert Attempt.objects.get().is_booked
