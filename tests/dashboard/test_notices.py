"""The bell, the list of notices, and the page of rules."""

from collections.abc import Mapping

from django.test import Client

from apps.accounts.models import User
from apps.dashboard.render import card_render
from apps.events.services import NewEvent, events_record
from apps.notices.models import Notice, NoticeRule
from apps.notices.services.notice_maker import notices_make
from apps.notices.services.rules import notice_rule_create
from apps.tasks.models import Task
from tests.dashboard.conftest import ClientFor, Submit
from tests.people import Example


def fail(*tasks: Task) -> None:
    events_record(
        NewEvent("task.failed", "task", one.pk, one.queue_id, None, data={"exit_code": 4})
        for one in tasks
    )
    notices_make()


def bell(user: User) -> str:
    rendered = card_render("notice_bell", "", user)
    assert rendered is not None
    return rendered.html


def test_the_bell_counts_what_is_unread(
    alice: User, bob: User, submit: Submit, client_for: ClientFor
) -> None:
    assert "notice-count" not in bell(alice)
    notice_rule_create(user=alice, scope="own", kinds=["failed"])
    fail(submit(alice, "train-1"), submit(alice, "train-2"), submit(bob, "train-3"))

    assert "Notices, 2 unread" in bell(alice)
    assert "notice-count" not in bell(bob)
    page = client_for(alice)
    answer = page.get("/notices/").content.decode()
    assert 'data-live="notice_bell"' in answer
    assert "train-1" in answer
    assert "exit code 4" in answer
    assert "train-3" not in answer

    newest = Notice.objects.filter(user=alice).latest("pk")
    assert page.post("/notices/read/", {"id": newest.pk}).status_code == 302
    assert "Notices, 1 unread" in bell(alice)
    page.post("/notices/read/")
    assert "notice-count" not in bell(alice)


def test_more_than_99_are_not_counted_out(alice: User, submit: Submit) -> None:
    notice_rule_create(user=alice, scope="own", kinds=["failed"])
    fail(*[submit(alice, "same")] * 120)

    assert "99+" in bell(alice)


def test_older_notices_are_on_further_pages(
    alice: User, submit: Submit, client_for: ClientFor
) -> None:
    notice_rule_create(user=alice, scope="own", kinds=["failed"])
    fail(*[submit(alice, "same")] * 60)
    page = client_for(alice)

    first = page.get("/notices/").content.decode()
    oldest_shown = list(Notice.objects.values_list("pk", flat=True)[:50])[-1]
    second = page.get(f"/notices/?before={oldest_shown}").content.decode()

    assert f"?before={oldest_shown}" in first
    assert first.count("exit code 4") == 50
    assert second.count("exit code 4") == 10
    assert page.get("/notices/?before=x").status_code == 404


def test_an_empty_page_leads_to_the_rules(alice: User, client_for: ClientFor) -> None:
    page = client_for(alice)

    assert "You have no rule yet" in page.get("/notices/").content.decode()
    assert "No rule yet" in page.get("/settings/notices/").content.decode()


def test_rules_are_added_changed_and_removed_on_their_page(
    root: User, alice: User, example: Example, client_for: ClientFor
) -> None:
    page = client_for(root)
    queue = f"queue {example.dev_queue.pk}"
    body = {"tasks": queue, "kinds": ["failed", "waiting"], "wait_minutes": "60"}

    assert page.post("/settings/notices/new/", body).status_code == 302
    rule = NoticeRule.objects.get()
    assert (rule.queue, rule.kinds, rule.wait_minutes) == (
        example.dev_queue,
        ["failed", "waiting"],
        60,
    )
    assert f"Queue {example.dev_queue.name}" in page.get("/settings/notices/").content.decode()
    address = f"/settings/notices/{rule.pk}"
    assert page.post(f"{address}/edit/", {"kinds": ["paused"]}).status_code == 302
    rule.refresh_from_db()
    assert (rule.kinds, rule.wait_minutes) == (["paused"], None)
    assert client_for(alice).get(f"{address}/edit/").status_code == 404
    assert client_for(alice).post(f"{address}/remove/").status_code == 404
    assert page.get(f"{address}/remove/").status_code == 200
    assert page.post(f"{address}/remove/").status_code == 302
    assert not NoticeRule.objects.exists()


def test_errors_of_a_rule_are_at_their_field(
    alice: User, example: Example, client_for: ClientFor
) -> None:
    page: Client = client_for(alice)
    foreign = {"tasks": f"queue {example.dev_queue.pk}", "kinds": ["failed"]}

    assert "Choose a value for" in _refused(page, {"tasks": "own"})
    assert "Waiting needs one of" in _refused(page, {"tasks": "own", "kinds": ["waiting"]})
    assert "Select a valid choice" in _refused(page, foreign)
    assert not NoticeRule.objects.exists()


def _refused(page: Client, body: Mapping[str, object]) -> str:
    answer = page.post("/settings/notices/new/", body)
    assert answer.status_code == 400
    return answer.content.decode()
