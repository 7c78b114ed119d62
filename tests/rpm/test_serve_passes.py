"""Passes from a plain loop, without a broker."""

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import OperationalError
from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import PassOutcome
from apps.configuration.services.policies import policy_change
from apps.policies.models import PolicySpending
from apps.usage.models import ReservedSince, UsageRun
from rpm.management.commands import serve_passes
from tests.people import Example

pytestmark = pytest.mark.django_db


def test_a_database_that_goes_away_does_not_end_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[Exception | PassOutcome] = iter(
        [OperationalError("server closed the connection"), PassOutcome(True, placed=1)]
    )

    def run_pass() -> PassOutcome:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(serve_passes, "run_pass", run_pass)

    assert [serve_passes.decide_once(), serve_passes.decide_once()] == [False, True]


def test_usage_is_seen_to_as_beat_does_it(example: Example, root: User) -> None:
    policy_change(actor=root, policy=example.dev, changes={"budget": Decimal(10)})

    serve_passes.tidy_once()

    assert UsageRun.objects.get().at > timezone.now() - timedelta(minutes=1)
    assert PolicySpending.objects.get().policy == example.dev
    assert ReservedSince.objects.count() == 2
