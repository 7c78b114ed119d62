"""What a process counted and cached in one test is not held against the next."""

from collections.abc import Iterator

import pytest

from apps.accounts.services import throttling
from apps.core import rate_counters, shared_redis
from apps.tasks.selectors.facts import cached_facts_clear
from apps.tasks.services import arrays
from tests.services.timeouts import MOST

# Redis of a busy machine is slow, not away: what processes count together stays together.
shared_redis.ANSWER_S *= MOST


@pytest.fixture(autouse=True)
def fresh_caches(request: pytest.FixtureRequest) -> Iterator[None]:
    """Begin again with tests that touch the database; others ask for nothing."""
    yield
    if request.node.get_closest_marker("database"):
        throttling.counters.clear()
        throttling.meter.clear()
        cached_facts_clear()


@pytest.fixture(autouse=True)
def whole_steps(request: pytest.FixtureRequest) -> Iterator[None]:
    """Steps of arrays end by what they store, however slow the machine is."""
    # Its own: the one of a test is undone before the fixtures that the test asked for.
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("database"):
            patch.setattr(arrays, "STEP_S", 3600.0)
        yield


@pytest.fixture
def one_long_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the requests of a test take, throttles count all of them in one minute."""
    monkeypatch.setattr(throttling, "WINDOW_S", 10**9)
    monkeypatch.setattr(rate_counters, "WINDOW_S", 10**9)
