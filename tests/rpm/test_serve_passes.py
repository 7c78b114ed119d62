"""Passes from a plain loop, without a broker."""

from collections.abc import Iterator

import pytest
from django.db import OperationalError

from apps.allocation.services import PassOutcome
from rpm.management.commands import serve_passes

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
