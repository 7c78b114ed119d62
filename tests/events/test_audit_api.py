"""The audit log over REST."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.events.chain import entry_hash
from apps.events.models import AuditEntry
from apps.events.services import event_record
from apps.events.services.seals import audit_seal

pytestmark = pytest.mark.django_db
As = Callable[[User], APIClient]
LIST = "/api/v1/audit/"


def record(actor: User | None, kind: str = "policy.changed", **data: Any) -> None:
    noun = kind.partition(".")[0]
    event_record(kind, actor=actor, object_type=noun, object_id=7, data=data)


@pytest.mark.parametrize("path", ["", "export/", "chain/", "1/"])
def test_charlie_sees_nothing_of_it(api_as: As, root: User, charlie: User, path: str) -> None:
    record(root)

    assert api_as(charlie).get(LIST + path).status_code in {403, 404}


@pytest.mark.parametrize(
    ("query", "want"),
    [
        pytest.param("who=ROOT", 2, id="who"),
        pytest.param("who=alice", 1, id="somebody else"),
        pytest.param("verb=policy.changed", 2, id="verb"),
        pytest.param("verb=policy.", 2, id="all of a kind"),
        pytest.param("verb=policy", 2, id="the beginning of a verb"),
        pytest.param("verb=polish", 0, id="no such verb"),
        pytest.param("target=policy", 2, id="kind of target"),
        pytest.param("target=policy+7", 2, id="target by id"),
        pytest.param("target=policy+dev", 1, id="target by name"),
        pytest.param("text=Because", 1, id="a reason"),
        pytest.param("text=zwölf", 1, id="a value"),
        pytest.param("text=%25", 0, id="a sign of patterns is a sign"),
        pytest.param("since=2000-01-01T00:00:00Z", 3, id="since"),
        pytest.param("until=2000-01-01T00:00:00Z", 0, id="until"),
    ],
)
def test_filters(api_as: As, root: User, alice: User, query: str, want: int) -> None:
    record(root, name="Dev", before={"weight": 1}, after={"weight": "zwölf"})
    record(root, reason="because")
    record(alice, "queue.paused")

    answer = api_as(root).get(f"{LIST}?{query}").json()

    verbs = {"policy.changed", "queue.paused"}
    assert len([one for one in answer["results"] if one["verb"] in verbs]) == want


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("", "since=yesterday"),
        ("", "until=2026-13-01"),
        ("export/", "as=xml"),
        ("export/", "since=0001-01-01T00:00:00%2B14:00"),
        ("export/", "until=9999-12-31T23:59:00-14:00"),
        ("", "since=0001-01-01T00:00:00%2B14:00"),
    ],
)
def test_a_wrong_value_is_named(api_as: As, root: User, path: str, query: str) -> None:
    answer = api_as(root).get(f"{LIST}{path}?{query}")

    assert answer.status_code == 400
    assert query.split("=", maxsplit=1)[0] in answer.json()["fields"]
    assert not AuditEntry.objects.filter(verb="audit.exported").exists()


def test_pages_follow_one_another_and_cost_the_same(
    api_as: As, root: User, django_assert_max_num_queries: Any
) -> None:
    for _ in range(30):
        record(root)
    client = api_as(root)
    first = client.get(f"{LIST}?limit=20").json()

    with django_assert_max_num_queries(5):
        second = client.get(first["next"]).json()

    ids = [one["id"] for one in [*first["results"], *second["results"]]]
    assert ids == sorted(set(ids), reverse=True)


def test_json_lines_hold_what_is_hashed(api_as: As, root: User) -> None:
    record(root, before={"weight": 1.5}, after={"weight": 2})
    audit_seal()

    answer = api_as(root).get(f"{LIST}export/?as=jsonl&verb=policy.changed")

    lines = [json.loads(line) for line in answer.getvalue().decode().splitlines()]
    assert len(lines) == 1
    assert entry_hash(lines[0]) == lines[0]["hash"]
    assert answer.headers["Content-Disposition"].startswith("attachment")


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", " =", "＝"])
def test_a_spreadsheet_takes_nothing_for_a_formula(api_as: As, root: User, start: str) -> None:
    record(root, name=f"{start}cmd|'/c calc'!A1", reason=f"{start}1+1")

    body = api_as(root).get(f"{LIST}export/?verb=policy.changed").getvalue().decode()

    rows = list(csv.DictReader(io.StringIO(body, newline="")))
    assert rows[0]["object_name"].startswith("'")
    assert rows[0]["reason"].startswith("'")


def test_who_exported_stands_in_the_log(api_as: As, root: User) -> None:
    api_as(root).get(f"{LIST}export/?who=root")

    entry = AuditEntry.objects.get(verb="audit.exported")
    assert (entry.actor, entry.via) == ("root", "rest")
    assert entry.details["filters"] == {"who": "root"}


def test_the_end_of_the_chain_is_answered(api_as: As, root: User) -> None:
    client = api_as(root)
    record(root)
    audit_seal()
    record(root)

    facts = client.get(f"{LIST}chain/").json()

    last = AuditEntry.objects.order_by("position").filter(position__isnull=False).last()
    assert last is not None
    assert facts == {"length": last.position, "head": last.hash, "unsealed": 1}
