"""What throttles counted in one test is not held against the next."""

from collections.abc import Iterator

import pytest

from apps.accounts.services import throttling


@pytest.fixture(autouse=True)
def fresh_counts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Begin again with tests that touch the database; others ask for nothing."""
    yield
    if request.node.get_closest_marker("database"):
        throttling.counters.clear()
        throttling.meter.clear()
