"""One clock for all: a worker's own may be wrong."""

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from apps.core import clock

JUMP = timedelta(hours=2)


@pytest.fixture
def right() -> datetime:
    return timezone.now()


@pytest.fixture
def ahead(right: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process's wall clock is two hours ahead."""
    real = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: real() + JUMP)


@pytest.mark.postgres_only
@pytest.mark.django_db
def test_the_database_says_what_time_it_is(right: datetime, ahead: None) -> None:
    assert timezone.now() - right >= JUMP
    assert clock.now() - right < JUMP / 2
    assert clock.is_in_doubt()


@pytest.mark.django_db
def test_a_clock_that_agrees_is_believed() -> None:
    assert not clock.is_in_doubt()


@pytest.mark.django_db
def test_a_jump_since_the_process_began_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    wall_s, boot_s = clock._began
    monkeypatch.setattr(clock, "_began", (wall_s - JUMP.total_seconds(), boot_s))

    assert clock.is_in_doubt()
