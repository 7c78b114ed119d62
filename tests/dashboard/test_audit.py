"""The page of the audit log."""

from typing import Any

import pytest

from apps.accounts.models import User
from apps.events.models import AuditEntry
from apps.events.services import event_record
from apps.events.services.seals import audit_seal
from tests.dashboard.conftest import ClientFor
from tests.page_words import words_on

pytestmark = pytest.mark.django_db
PAGE = "/settings/audit/"


def record(actor: User, number: int = 1) -> None:
    event_record(
        "policy.changed",
        actor=actor,
        object_type="policy",
        object_id=number,
        data={"name": f"P{number}", "before": {"weight": 3}, "after": {"weight": 4}},
    )


@pytest.mark.parametrize("path", [PAGE, f"{PAGE}export/csv/", f"{PAGE}export/jsonl/"])
def test_only_administrators_know_of_it(
    client_for: ClientFor, charlie: User, quinn: User, path: str
) -> None:
    assert client_for(charlie).get(path).status_code == 404
    assert client_for(quinn).get(path).status_code == 404
    page = client_for(charlie).get("/credentials/").content.decode()
    assert words_on(page, "Audit") == []


def test_an_entry_shows_what_it_changed(client_for: ClientFor, root: User) -> None:
    record(root)
    audit_seal()

    shown = client_for(root).get(f"{PAGE}?target=policy+P1").content.decode()

    assert "policy.changed" in shown
    assert "weight:" in shown
    assert AuditEntry.objects.get(verb="policy.changed").hash in shown


def test_what_is_not_sealed_yet_is_shown_as_such(client_for: ClientFor, root: User) -> None:
    record(root)

    assert "not sealed yet" in client_for(root).get(PAGE).content.decode()


def test_pages_follow_one_another_with_the_filter(
    client_for: ClientFor, root: User, django_assert_max_num_queries: Any
) -> None:
    for number in range(60):
        record(root, number)
    client = client_for(root)
    first = client.get(f"{PAGE}?verb=policy.")

    with django_assert_max_num_queries(9):
        second = client.get(f"{PAGE}?verb=policy.&before={first.context['page'].older}")

    assert len(first.context["page"].rows) == 50
    assert len(second.context["page"].rows) == 10
    assert second.context["page"].older is None


def test_an_empty_answer_says_how_to_go_on(client_for: ClientFor, root: User) -> None:
    shown = client_for(root).get(f"{PAGE}?who=nobody-of-this-name").content.decode()

    assert "No entry matches" in shown
    assert "Clear filter" in shown


@pytest.mark.parametrize(
    "query",
    ["since=9999-12-31", "since=x", "before=٣", "verb=%00", "text=%F0%9F", "who=" + "a" * 999],
)
def test_nonsense_in_the_address_is_no_error(client_for: ClientFor, root: User, query: str) -> None:
    assert client_for(root).get(f"{PAGE}?{query}").status_code == 200


def test_days_are_those_of_the_reader(client_for: ClientFor, root: User) -> None:
    User.objects.filter(pk=root.pk).update(time_zone="Nowhere/Atall")
    record(root)

    page = client_for(root).get(f"{PAGE}?since=2000-01-01&until=2100-01-01").context["page"]

    assert len(page.rows) >= 1


def test_an_export_is_a_download_of_what_the_form_asks_for(
    client_for: ClientFor, root: User
) -> None:
    record(root)

    answer = client_for(root).get(f"{PAGE}export/csv/?verb=policy.changed")

    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.getvalue().decode().count("\r\n") == 2
    assert AuditEntry.objects.filter(verb="audit.exported").exists()


@pytest.mark.parametrize("query", ["who=roo", "verb=change", "target=dev+te", "target=policy+Dev"])
def test_the_beginning_of_a_name_is_enough_where_nothing_matches_exactly(
    client_for: ClientFor, root: User, query: str
) -> None:
    event_record(
        "policy.changed",
        actor=root,
        object_type="policy",
        object_id=7,
        data={"name": "Dev team"},
    )

    page = client_for(root).get(f"{PAGE}?{query}").context["page"]

    assert "Dev team" in {row.entry.object_name for row in page.rows}
