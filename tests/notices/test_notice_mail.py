"""Notices by e-mail, to a real SMTP server."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings
from rest_framework.test import APIClient

from apps.access.levels import Level, RuleKind
from apps.access.rules.rule import Target
from apps.accounts.models import User
from apps.accounts.services.groups import group_members_remove
from apps.accounts.services.mail import mail_send
from apps.configuration.services.rules import RuleSubjects, rule_grant, rule_remove
from apps.core import clock
from apps.nodes.models import Installation
from apps.notices.models import Notice, NoticeSettings
from apps.notices.services import notice_mail
from apps.notices.services.mail_times import is_due, is_quiet
from apps.notices.services.notice_mail import WAITS
from apps.notices.services.rules import notice_rule_create
from apps.notices.services.settings import notice_settings_change
from apps.tasks.models import Task
from tests.notices.conftest import Happen, Submit, notices_mail, notices_make
from tests.people import Example
from tests.services.smtp import REFUSED, Inbox
from tests.services.timeouts import scale_timeout

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "/api/v1/notice-settings/"


def fail(user: User, submit: Submit, happen: Happen, *names: str) -> list[Task]:
    """A rule with e-mail, and failed tasks of the user."""
    if not user.notice_rules.exists():
        notice_rule_create(user=user, scope="own", kinds=["failed"], by_email=True)
    tasks = [submit(user, name) for name in names]
    for task in tasks:
        happen(task, "task.failed", exit_code=3)
    notices_make()
    return tasks


def is_left() -> bool:
    return Notice.objects.filter(is_mail_due=True).exists()


def test_a_notice_goes_by_mail_once(
    confirmed: User, inbox: Inbox, submit: Submit, happen: Happen
) -> None:
    task = fail(confirmed, submit, happen, "träin\nBcc: x@example.org")[0]

    assert (notices_mail(), notices_mail()) == (1, 0)

    mail = inbox.messages[0]
    assert mail["To"] == "alice@example.org"
    assert mail["Subject"] == "RPM: träin Bcc: x@example.org failed"
    assert mail["Bcc"] is None
    assert mail["Message-ID"].endswith("@example.org>")
    assert f"exit code 3, id {task.pk}" in mail.get_content()
    assert len(inbox.messages) == 1
    assert not is_left()


def test_several_notices_are_one_mail_and_others_are_left_out(
    confirmed: User, inbox: Inbox, submit: Submit, happen: Happen
) -> None:
    fail(confirmed, submit, happen, "one", "two", "three")
    notice_rule_create(user=confirmed, scope="own", kinds=["started"])
    happen(submit(confirmed, "four"), "task.running")
    notices_make()

    assert notices_mail() == 1

    assert inbox.messages[0]["Subject"] == "RPM: 3 notices"
    text = inbox.messages[0].get_content()
    assert text.index("one") < text.index("two") < text.index("three")
    assert "four" not in text


@pytest.mark.parametrize(
    "facts",
    [
        {"is_email_unverified": True},
        {"email": ""},
        {"is_pending": True},
        {"is_active": False},
    ],
    ids=str,
)
def test_there_is_no_mail_to_addresses_that_nobody_confirmed(
    confirmed: User, inbox: Inbox, submit: Submit, happen: Happen, facts: dict[str, object]
) -> None:
    fail(confirmed, submit, happen, "secret")
    User.objects.filter(pk=confirmed.pk).update(**facts)

    assert notices_mail() == 0

    assert inbox.messages == []
    assert not is_left()
    assert "no confirmed" in NoticeSettings.objects.get().problem


def test_what_the_user_may_not_see_any_more_is_in_no_mail(
    confirmed: User,
    bob: User,
    root: User,
    example: Example,
    inbox: Inbox,
    submit: Submit,
    happen: Happen,
) -> None:
    """A member who managed the queue of others gets mail of their own task alone."""
    User.objects.filter(pk=bob.pk).update(email="bob@example.org")
    target = Target(RuleKind.QUEUE, str(example.dev_queue.pk))
    rule_grant(actor=root, target=target, level=Level.MANAGE, subjects=RuleSubjects(users=(bob,)))
    queue = example.dev_queue
    notice_rule_create(user=bob, scope="queue", queue=queue, kinds=["failed"], by_email=True)
    fail(bob, submit, happen, "kept")
    happen(submit(confirmed, "hidden"), "task.failed")
    notices_make()
    assert Notice.objects.filter(user=bob, is_mail_due=True).count() == 2

    rule_remove(actor=root, target=target, level=Level.MANAGE)
    group_members_remove(actor=root, group=example.dev.group, users=[bob])

    assert notices_mail() == 1
    assert inbox.messages[0]["Subject"] == "RPM: kept failed"
    assert "hidden" not in inbox.messages[0].as_string()


def test_who_is_deactivated_while_others_get_their_mail_gets_none(
    confirmed: User,
    bob: User,
    inbox: Inbox,
    submit: Submit,
    happen: Happen,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    User.objects.filter(pk=bob.pk).update(email="bob@example.org")
    fail(confirmed, submit, happen, "first")
    fail(bob, submit, happen, "second")
    send = mail_send

    def deactivates(**facts: Any) -> object:
        User.objects.filter(pk=bob.pk).update(is_active=False)
        return send(**facts)

    monkeypatch.setattr(notice_mail, "mail_send", deactivates)

    assert notices_mail() == 1
    assert [mail["To"] for mail in inbox.messages] == ["alice@example.org"]
    assert not is_left()


def test_a_worker_that_hung_leaves_the_try_of_another_alone(
    confirmed: User,
    inbox: Inbox,
    submit: Submit,
    happen: Happen,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail(confirmed, submit, happen, "one")
    send, later = mail_send, clock.now() + WAITS[0]

    def hangs(**facts: Any) -> object:
        NoticeSettings.objects.update(tries=2, tried_at=later)
        return send(**facts)

    monkeypatch.setattr(notice_mail, "mail_send", hangs)

    assert notices_mail() == 1
    row = NoticeSettings.objects.get()
    assert (row.tries, row.tried_at) == (2, later)
    assert row.mail_until != 0
    assert not is_left()


def test_a_server_that_is_away_is_tried_again_with_the_same_mail(
    confirmed: User, inbox: Inbox, settings: Settings, submit: Submit, happen: Happen
) -> None:
    fail(confirmed, submit, happen, "one")
    port, now = settings.EMAIL_PORT, clock.now()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        settings.EMAIL_PORT = silent.getsockname()[1]
        assert notices_mail(now=now) == 0
    assert "refused" in NoticeSettings.objects.get().problem.lower()
    settings.EMAIL_PORT = port
    fail(confirmed, submit, happen, "two")

    assert notices_mail(now=now + timedelta(minutes=1)) == 0
    assert notices_mail(now=now + timedelta(hours=1)) == 1

    # The second one came later: the repeated mail is the first one.
    assert inbox.messages[0]["Subject"] == "RPM: one failed"
    assert NoticeSettings.objects.get().problem == ""
    assert notices_mail(now=now + timedelta(hours=1)) == 1
    assert inbox.messages[1]["Subject"] == "RPM: two failed"
    assert inbox.messages[0]["Message-ID"] != inbox.messages[1]["Message-ID"]


def test_tries_are_bounded(confirmed: User, inbox: Inbox, submit: Submit, happen: Happen) -> None:
    User.objects.filter(pk=confirmed.pk).update(email=REFUSED)
    fail(confirmed, submit, happen, "one")
    now = clock.now()

    for step in range(len(WAITS) + 3):
        assert notices_mail(now=now + timedelta(days=step)) == 0

    row = NoticeSettings.objects.get()
    assert (row.tries, row.mail_until, is_left()) == (0, 0, False)
    assert "nobody of this name" in row.problem
    assert inbox.messages == []


def test_a_restored_database_mails_nothing_until_that_is_confirmed(
    confirmed: User, inbox: Inbox, submit: Submit, happen: Happen
) -> None:
    fail(confirmed, submit, happen, "one")
    Installation.objects.update_or_create(id=1, defaults={"restored_at": clock.now()})
    assert notices_mail() == 0

    Installation.objects.update(restored_at=None)
    assert notices_mail() == 1
    assert len(inbox.messages) == 1


def test_without_a_mail_server_there_is_nothing_to_mail_later(
    confirmed: User, settings: Settings, submit: Submit, happen: Happen
) -> None:
    settings.EMAIL_HOST = ""
    fail(confirmed, submit, happen, "one")

    assert notices_mail() == 0
    assert Notice.objects.exists()
    assert not is_left()


BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("digest", "oldest", "now", "want"),
    [
        pytest.param("at_once", "2026-03-28T10:10", "2026-03-28T10:10", True, id="at once"),
        pytest.param("hourly", "2026-03-28T10:10", "2026-03-28T10:59", False, id="within the hour"),
        pytest.param("hourly", "2026-03-28T10:10", "2026-03-28T11:00", True, id="the next hour"),
        # 8:00 in Berlin is 7:00 UTC in winter and 6:00 in summer, which begins on 29 March.
        pytest.param("daily", "2026-03-27T10:00", "2026-03-28T06:59", False, id="before 8:00"),
        pytest.param("daily", "2026-03-27T10:00", "2026-03-28T07:00", True, id="8:00"),
        pytest.param("daily", "2026-03-28T10:00", "2026-03-29T06:00", True, id="8:00 in summer"),
        pytest.param("daily", "2026-03-28T02:00", "2026-03-28T07:00", True, id="of the night"),
    ],
)
def test_a_digest_is_due(alice: User, digest: str, oldest: str, now: str, *, want: bool) -> None:
    alice.time_zone = BERLIN
    row = NoticeSettings(user=alice, digest=digest)
    first, at = (datetime.fromisoformat(one).replace(tzinfo=UTC) for one in (oldest, now))

    assert is_due(row, oldest=first, now=at) is want


@pytest.mark.parametrize(
    ("begin", "end", "quiet"),
    [(22, 6, {22, 23, 0, 5}), (8, 12, {8, 11}), (7, 7, set()), (None, None, set())],
)
def test_quiet_hours(begin: int | None, end: int | None, quiet: set[int]) -> None:
    row = NoticeSettings(quiet_from=begin, quiet_until=end)
    hours = (0, 5, 6, 7, 8, 11, 12, 21, 22, 23)

    found = {one for one in hours if is_quiet(row, datetime(2026, 3, 1, one, 30, tzinfo=UTC))}

    assert found == quiet


def test_quiet_hours_are_those_of_the_users_zone(
    confirmed: User, inbox: Inbox, submit: Submit, happen: Happen
) -> None:
    User.objects.filter(pk=confirmed.pk).update(time_zone="Asia/Tokyo")
    notice_settings_change(user=confirmed, changes={"quiet_from": 22, "quiet_until": 7})
    fail(confirmed, submit, happen, "one")
    day = clock.now().astimezone(UTC).replace(hour=0, minute=0) + timedelta(days=1)

    # 22:30 and 6:30 there, then 7:30.
    assert notices_mail(now=day.replace(hour=13, minute=30)) == 0
    assert notices_mail(now=day.replace(hour=21, minute=30)) == 0
    assert notices_mail(now=day.replace(hour=22, minute=30)) == 1
    assert len(inbox.messages) == 1


def test_the_settings_by_rest(api_as: Callable[[User], APIClient], confirmed: User) -> None:
    api = api_as(confirmed)
    start = {"digest": "at_once", "quiet_from": None, "quiet_until": None}

    assert api.get(ADDRESS).data == start | {"email": None, "problem": ""}
    changed = api.patch(ADDRESS, {"digest": "daily", "quiet_from": 22, "quiet_until": 6})
    assert changed.data["quiet_from"] == 22
    for body, field in (
        ({"digest": "weekly"}, "digest"),
        ({"quiet_from": 24}, "quiet_from"),
        ({"quiet_until": None}, "quiet_until"),
        ({"zone": "UTC"}, "zone"),
    ):
        answer = api.patch(ADDRESS, body)
        assert answer.status_code == 400
        assert list(answer.data["fields"]) == [field]
    assert api.patch(ADDRESS, {"quiet_from": None, "quiet_until": None}).data["digest"] == "daily"


SENDER = """
import os, signal
import django
django.setup()
from apps.notices.services import notice_mail
notice_mail._done = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
notice_mail.notices_mail()
"""


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgres_only
def test_a_killed_sender_loses_no_mail_and_repeats_it_with_the_same_id(
    confirmed: User, inbox: Inbox, submit: Submit, happen: Happen
) -> None:
    fail(confirmed, submit, happen, "one")
    facts = connection.get_connection_params()
    place = f"{facts.get('host', '')}:{facts.get('port', '')}"
    login = f"{facts.get('user', '')}:{facts.get('password', '')}"
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "rpm.settings",
        "DATABASE_URL": f"postgresql://{login}@{place}/{connection.settings_dict['NAME']}",
        "RPM_SMTP_HOST": "127.0.0.1",
        "RPM_SMTP_PORT": str(inbox.port),
        "RPM_SMTP_USER": "rpm",
        "RPM_SMTP_PASSWORD": "right",
        "RPM_SMTP_SECURITY": "none",
        "RPM_SMTP_FROM": "rpm@example.org",
    }

    killed = subprocess.run(
        [sys.executable, "-c", SENDER],
        cwd=ROOT,
        env=environment,
        check=False,
        timeout=scale_timeout(120),
    )

    assert killed.returncode == -signal.SIGKILL
    assert is_left()
    tried_at = NoticeSettings.objects.get().tried_at
    assert tried_at is not None
    assert notices_mail(now=tried_at + WAITS[0] / 2) == 0
    assert notices_mail(now=tried_at + WAITS[0]) == 1
    assert not is_left()
    first, second = (mail["Message-ID"] for mail in inbox.messages)
    assert first == second


@pytest.mark.django_db(transaction=True)
@pytest.mark.postgres_only
def test_two_senders_send_a_mail_once(
    confirmed: User, inbox: Inbox, submit: Submit, happen: Happen, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(confirmed, submit, happen, "one")
    both = threading.Barrier(2)
    due = notice_mail._due

    def together(now: datetime) -> list[tuple[NoticeSettings, int]]:
        found = due(now)
        both.wait(scale_timeout(60))
        return found

    monkeypatch.setattr(notice_mail, "_due", together)
    sent: list[int] = []

    def run() -> None:
        sent.append(notices_mail())
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert sorted(sent) == [0, 1]
    assert len(inbox.messages) == 1
