"""Concurrent users: nobody overwrites a version that they did not read."""

import threading
from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections

from apps.accounts.models import User
from apps.configuration.models import Revision
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.policies import policy_create
from apps.core.errors import Conflict, RpmError, Stale
from apps.policies.document import parse
from apps.policies.models import DraftState, LiveState
from tests.people import EXAMPLE

pytestmark = [
    pytest.mark.django_db(transaction=True),
]

AT_ONCE = 6


@pytest.fixture
def one_database() -> None:
    """Threads share rows only where the database is a server."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite in memory belongs to one thread")


def all_at_once(work: Callable[[int], object]) -> list[object]:
    """Results and expected failures of several threads that begin together."""
    barrier = threading.Barrier(AT_ONCE)
    results: list[object] = [None] * AT_ONCE

    def run(number: int) -> None:
        barrier.wait()
        try:
            results[number] = work(number)
        except RpmError as error:
            results[number] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_of_writers_who_read_one_version_only_one_saves(one_database: None, root: User) -> None:
    version = DraftState.objects.get().version

    results = all_at_once(
        lambda _: draft_write(document=parse(EXAMPLE), actor=root, version=version)
    )

    assert sum(isinstance(result, Stale) for result in results) == AT_ONCE - 1
    assert [result for result in results if isinstance(result, int)] == [version + 1]


def test_policies_made_at_once_have_their_own_revisions(
    one_database: None, root: User, dev_group: Group
) -> None:
    version = LiveState.objects.get().version

    all_at_once(lambda number: policy_create(actor=root, name=f"p{number}", group=dev_group))

    numbers = list(Revision.objects.order_by("number").values_list("number", flat=True))
    assert numbers == list(range(1, AT_ONCE + 1))
    assert LiveState.objects.get().version == version + AT_ONCE


def test_a_name_is_taken_once(one_database: None, root: User, dev_group: Group) -> None:
    results = all_at_once(lambda _: policy_create(actor=root, name="same", group=dev_group))

    refused = [result for result in results if isinstance(result, Conflict)]
    assert len(refused) == AT_ONCE - 1
    assert all("name" in error.fields for error in refused)
