"""Lists take as many queries with 500 policies and 2,000 people as with a few."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import User
from tests.bulk_data import bulk_data
from tests.dashboard.conftest import ClientFor

pytestmark = pytest.mark.django_db

REST = "/api/v1"
# Path, and what it may take at most, whoever looks.
LISTS = (
    ("/settings/people/", 14),
    ("/settings/people/?search=-000&sort=-active", 14),
    ("/settings/people/groups/", 12),
    ("/settings/service-accounts/", 12),
    ("/settings/vaults/", 14),
    ("/settings/audit/", 12),
    ("/settings/access/", 26),
    ("/credentials/", 10),
    ("/queues/", 20),
    ("/policies/", 25),
    ("/tasks/?view=all", 16),
    (f"{REST}/users/?limit=500", 8),
    (f"{REST}/groups/?limit=500", 12),
    (f"{REST}/service-accounts/?limit=500", 8),
    (f"{REST}/vaults/?limit=500", 8),
    (f"{REST}/audit/?limit=500", 8),
    (f"{REST}/access-rules/?limit=100", 18),
    (f"{REST}/queues/?limit=500", 10),
    (f"{REST}/policies/?limit=500", 12),
)


def queries(client: Client, path: str) -> tuple[int, int]:
    """Of a second look, for what is kept between requests; and the answer's status."""
    client.get(path)
    with CaptureQueriesContext(connection) as captured:
        answer = client.get(path)
    return len(captured), answer.status_code


def counted(client_for: ClientFor, people: tuple[User, ...]) -> dict[tuple[int, str], int]:
    found = {}
    for number, one in enumerate(people):
        client = client_for(one)
        for path, _ in LISTS:
            found[number, path], status = queries(client, path)
            assert status in {200, 403, 404}, path
            assert number or status == 200, path
    return found


def test_lists_take_as_many_queries_with_many_as_with_a_few(client_for: ClientFor) -> None:
    few = bulk_data(policies=10, people=20, tag="few")
    before = counted(client_for, (few.admin, few.member, few.plain))
    many = bulk_data(policies=490, people=1980, tag="many")

    after = counted(client_for, (many.admin, many.member, many.plain))

    grown = {key: (before[key], now) for key, now in after.items() if now > before[key]}
    assert grown == {}
    most = dict(LISTS)
    assert {key: now for key, now in after.items() if now > most[key[1]]} == {}
