"""The sessions of a user, and ending them from elsewhere."""

import re
from datetime import timedelta

import pytest
from asgiref.sync import async_to_sync
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from apps.accounts.models import PersonSession, User
from apps.accounts.selectors import sessions_of
from apps.accounts.services import sessions
from apps.accounts.services.people import user_create
from apps.accounts.services.people_changes import person_deactivate
from apps.accounts.services.sessions import sessions_prune
from apps.accounts.session_store import SessionStore, stored_key
from apps.accounts.user_agents import browser_name
from apps.events.models import AuditEntry
from tests.configuration.api.common import V1
from tests.dashboard.page_reader import text
from tests.page_words import words_on

pytestmark = pytest.mark.django_db

PASSWORD = "Correct-horse-7-battery"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"
SAFARI = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 "
    "(KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1"
)


@pytest.fixture
def ada(db: None) -> User:
    return user_create(username="ada", password=PASSWORD)


def browser(agent: str = FIREFOX, address: str = "192.0.2.7") -> Client:
    client = Client(headers={"user-agent": agent}, REMOTE_ADDR=address)
    answer = client.post(reverse("sign_in"), {"username": "ada", "password": PASSWORD})
    assert answer.status_code == 302
    return client


def test_the_account_page_shows_where_one_is_signed_in(ada: User) -> None:
    here = browser()
    browser(SAFARI, "198.51.100.9")
    browser(address="203.0.113.1").post(reverse("sign_out"))

    page = here.get(reverse("account"))

    words = text(page)
    assert "Firefox on Linux this one 192.0.2.7" in words
    assert "Safari on iPhone 198.51.100.9" in words
    assert "203.0.113.1" not in words
    keys = PersonSession.objects.values_list("session_key", flat=True)
    assert not [key for key in keys if key in page.content.decode()]


def test_with_what_the_database_holds_nobody_signs_in(ada: User) -> None:
    here = browser()
    stored = [*Session.objects.values_list("pk", flat=True)]
    stored += PersonSession.objects.values_list("session_key", flat=True)
    thief = Client()

    thief.cookies["sessionid"] = stored[0]

    assert len(stored) == 2
    assert here.session.session_key not in stored
    assert thief.get("/tasks/").status_code == 302
    assert here.get("/tasks/").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_sessions_are_hashed_for_asynchronous_code_too() -> None:
    async def used() -> None:
        store = SessionStore()
        await store.aset("seen", 1)
        await store.asave()
        key = str(store.session_key)
        assert await SessionStore(key).aget("seen") == 1
        assert await SessionStore(key).aexists(key)
        assert await SessionStore(stored_key(key)).aget("seen") is None
        await store.adelete()
        assert not await SessionStore(key).aexists(key)

    async_to_sync(used)()


def test_another_session_is_ended_at_once(ada: User) -> None:
    here, there, third = browser(), browser(SAFARI), browser(SAFARI, "198.51.100.9")
    ids = re.findall(r'name="session" value="(\w+)"', text_of(here))

    done = here.post(reverse("account"), {"form": "session", "session": ids[1]})
    after = [one.get("/tasks/").status_code for one in (here, there, third)]

    assert len(ids) == 2
    assert done.status_code == 302
    assert sorted(after) == [200, 200, 302]
    assert after[0] == 200
    assert len(sessions_of(ada, this=None)) == 2
    entry = AuditEntry.objects.get(verb="session.ended")
    assert (entry.actor, entry.before["count"]) == ("ada", 1)


def test_all_others_are_ended_together(ada: User) -> None:
    here, others = browser(), [browser(SAFARI), browser(SAFARI)]

    here.post(reverse("account"), {"form": "sessions"})

    assert [one.get("/tasks/").status_code for one in (here, *others)] == [200, 302, 302]
    ada.refresh_from_db()
    assert [one.is_this for one in sessions_of(ada, this=here.session.session_key)] == [True]


def test_those_that_were_never_noted_end_with_the_others(ada: User) -> None:
    here, unnoted = browser(), browser(SAFARI)
    PersonSession.objects.filter(session_key=stored_key(str(unnoted.session.session_key))).delete()

    here.post(reverse("account"), {"form": "sessions"})

    assert [one.get("/tasks/").status_code for one in (here, unnoted)] == [200, 302]
    assert AuditEntry.objects.filter(verb="session.ended").count() == 1


def test_nobody_ends_the_session_of_another_user(ada: User, alice: User) -> None:
    browser()
    (hers,) = sessions_of(ada, this=None)
    other = Client()
    other.force_login(alice)

    refused = other.post(reverse("account"), {"form": "session", "session": hers.id})

    assert refused.status_code == 404
    assert sessions_of(ada, this=None) == [hers]


def test_a_new_password_leaves_this_session_in_the_list(ada: User) -> None:
    here = browser()
    browser(SAFARI)
    form = {"form": "password", "current_password": PASSWORD, "new_password": "Another-one-77"}

    here.post(reverse("account"), form)

    words = text(here.get(reverse("account")))
    assert "Firefox on Linux this one" in words
    assert words_on(words, "Safari") == []


def test_who_is_deactivated_is_signed_in_nowhere(ada: User, root: User) -> None:
    browser()

    person_deactivate(actor=root, user=ada)

    assert sessions_of(User.objects.get(pk=ada.pk), this=None) == []


def test_it_costs_nothing_within_a_minute_and_is_kept_to_the_minute(
    ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = browser()
    PersonSession.objects.update(seen_at=timezone.now() - timedelta(minutes=5))

    with CaptureQueriesContext(connection) as captured:
        here.get(f"{V1}/account/")
    assert not [one for one in captured if "personsession" in one["sql"]]
    monkeypatch.setattr(sessions, "NOTE_EVERY_S", 0.0)
    here.get(f"{V1}/account/")

    assert PersonSession.objects.get().seen_at > timezone.now() - timedelta(minutes=1)


def test_what_is_over_is_removed(ada: User) -> None:
    browser()
    browser(SAFARI)
    old = PersonSession.objects.order_by("pk")[0]
    Session.objects.filter(pk=old.session_key).update(expire_date=timezone.now())

    assert sessions_prune() == 1

    assert PersonSession.objects.get().agent == SAFARI
    assert Session.objects.count() == 1


@pytest.mark.parametrize(
    ("agent", "want"),
    [
        (FIREFOX, "Firefox on Linux"),
        (SAFARI, "Safari on iPhone"),
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/126 Safari/537 Edg/126",
            "Edge on Windows",
        ),
        ("Mozilla/5.0 (Linux; Android 14) Chrome/126 Mobile Safari/537.36", "Chrome on Android"),
        ("something else", ""),
        ("", ""),
    ],
)
def test_browsers_are_named_in_words(agent: str, want: str) -> None:
    assert browser_name(agent) == want


def text_of(client: Client) -> str:
    return client.get(reverse("account")).content.decode()
