"""Second factors: set up with a password, asked at the next log-in, required where it says so."""

import re
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import (
    format_hotp_value,
    hotp_value,
    yield_hotp_counters_from_time,
)
from django.contrib.auth.models import Group
from django.core.cache import cache, caches
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from apps.accounts.models import ADMINS, User
from apps.accounts.services.identity import log_in_rules_change, provider_create
from apps.accounts.services.identity_secrets import identity_secrets_reseal
from apps.accounts.services.invitations import invitation_renew
from apps.accounts.services.people import user_create
from apps.core import shared_cache
from apps.core.errors import BadInput
from apps.core.keyring import SealMismatch, new_key, unseal
from apps.core.resealer import Resealer
from apps.core.shared_redis import SharedRedis
from apps.events.models import AuditEntry
from tests.dashboard.page_reader import text
from tests.page_words import words_on

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def fresh_counters(db: None) -> None:
    cache.clear()


@pytest.fixture
def dana(db: None) -> User:
    return user_create(username="dana", password=PASSWORD)


@pytest.fixture
def boss(db: None) -> User:
    return user_create(username="boss", password=PASSWORD, groups=[ADMINS])


def sign_in(client: Client, name: str) -> str:
    """Where a right password leads; empty for nowhere."""
    answer = client.post(reverse("sign_in"), {"username": name, "password": PASSWORD, "next": "/"})
    return str(answer.headers.get("Location", ""))


def code_of(secret: str, step: int = 1) -> str:
    """What an app shows now (1); one step before (0) and after (2) are taken, too."""
    counters = list(yield_hotp_counters_from_time())
    return str(format_hotp_value(hotp_value(secret, counters[step])))


def enrolled(client: Client) -> tuple[str, list[str]]:
    """Set an app up; its secret and the recovery codes."""
    page = client.get(reverse("mfa_activate_totp")).content.decode()
    found = re.search(r'data-copy="([A-Z2-7]{32})"', page)
    assert found, page
    answer = client.post(reverse("mfa_activate_totp"), {"code": code_of(found[1])}, follow=True)
    return found[1], re.findall(r"<li>(\d{8})</li>", answer.content.decode())


def test_an_app_is_asked_at_the_next_log_in_and_a_code_works_once(
    dana: User, client: Client
) -> None:
    sign_in(client, "dana")
    secret, codes = enrolled(client)
    other = Client()

    where = sign_in(other, "dana")
    before = other.get("/").status_code
    wrong = other.post(where, {"code": "000000"})
    right = other.post(where, {"code": code_of(secret, 0)})

    assert where == reverse("mfa_authenticate")
    assert before == 302
    assert wrong.status_code == 200
    assert right["Location"] == "/"
    assert other.get("/").status_code == 200
    again = Client()
    # Neither what django-allauth remembers for 30 seconds, nor the code that set the app up.
    cache.clear()
    assert again.post(sign_in(again, "dana"), {"code": code_of(secret, 0)}).status_code == 200
    assert again.post(sign_in(again, "dana"), {"code": code_of(secret, 1)}).status_code == 200
    assert again.post(sign_in(again, "dana"), {"code": codes[0]})["Location"] == "/"


def test_the_secret_is_sealed_and_codes_are_shown_once(dana: User, client: Client) -> None:
    sign_in(client, "dana")
    secret, codes = enrolled(client)

    kept = Authenticator.objects.get(user=dana, type=Authenticator.Type.TOTP).data
    page = client.get(reverse("mfa_view_recovery_codes")).content.decode()

    assert secret not in str(kept)
    assert len(codes) == 10
    assert words_on(page, *codes) == []


def test_the_secret_waits_sealed_until_the_app_is_set_up(dana: User, client: Client) -> None:
    sign_in(client, "dana")
    page = client.get(reverse("mfa_activate_totp")).content.decode()
    secret = re.findall(r'data-copy="([A-Z2-7]{32})"', page)[0]

    kept = str(dict(client.session.items()))
    again = client.post(reverse("mfa_activate_totp"), {"code": "000000"}).content.decode()

    assert "mfa.totp.secret" in kept
    assert secret not in kept
    assert f'data-copy="{secret}"' in again


def test_what_is_done_to_second_factors_stands_in_the_audit_log(
    dana: User, client: Client, django_capture_on_commit_callbacks: Any
) -> None:
    sign_in(client, "dana")
    commits = django_capture_on_commit_callbacks
    with commits(execute=True):
        secret, codes = enrolled(client)
    with commits(execute=True):
        client.post(reverse("mfa_generate_recovery_codes"))
    answer = client.get(reverse("mfa_view_recovery_codes"))
    renewed = re.findall(r"<li>(\d{8})</li>", answer.content.decode())
    other = Client()
    other.post(sign_in(other, "dana"), {"code": "000000"})
    other.post(sign_in(other, "dana"), {"code": renewed[0]})
    client.post(reverse("mfa_deactivate_totp"))

    entries = AuditEntry.objects.filter(verb__startswith="second_factor.").order_by("pk")
    app, recovery = {"kind": "totp"}, {"kind": "recovery_codes"}
    assert [(one.verb, one.actor, one.before, one.after) for one in entries] == [
        ("second_factor.added", "dana", {}, app),
        ("second_factor.added", "dana", {}, recovery),
        ("second_factor.renewed", "dana", {}, recovery),
        ("second_factor.refused", "nobody signed in", {}, {}),
        ("second_factor.used", "dana", {}, recovery | {"left": 9}),
        ("second_factor.removed", "dana", app, {}),
        ("second_factor.removed", "dana", recovery, {}),
    ]
    assert {one.object_name for one in entries} == {"dana"}
    kept = str(list(entries.values()))
    assert not [one for one in (secret, *codes, *renewed) if one in kept]


def test_wrong_codes_are_counted_for_all_processes(dana: User, client: Client) -> None:
    sign_in(client, "dana")
    _secret, codes = enrolled(client)
    other = Client()
    where = sign_in(other, "dana")

    for _ in range(5):
        other.post(where, {"code": "000000"})
    # Another process: what this one keeps in memory is not asked.
    caches["default"]._here.clear()  # type: ignore[attr-defined]  # ours
    last = other.post(where, {"code": codes[0]})

    assert "Too many" in text(last)
    assert other.get("/").status_code == 302


def test_wrong_codes_are_counted_while_redis_is_away(
    dana: User, client: Client, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(shared_cache, "_shared", SharedRedis())
    sign_in(client, "dana")
    _secret, codes = enrolled(client)
    other = Client()
    where = sign_in(other, "dana")

    for _ in range(5):
        other.post(where, {"code": "000000"})

    assert "Too many" in text(other.post(where, {"code": codes[0]}))


def test_too_many_wrong_passwords_again_are_answered_with_a_page(
    dana: User, client: Client
) -> None:
    sign_in(client, "dana")
    path = reverse("account_reauthenticate")

    answers = [client.post(path, {"password": "wrong"}) for _ in range(11)]

    assert answers[-1].status_code == 429
    assert "Too many attempts" in text(answers[-1])


@pytest.mark.parametrize("by_group", [False, True])
def test_who_must_have_one_reaches_nothing_before(
    boss: User, dana: User, dev_group: Group, client: Client, *, by_group: bool
) -> None:
    dana.groups.add(dev_group)
    log_in_rules_change(
        actor=boss,
        allows_passwords=True,
        break_glass=None,
        requires_second_factor=not by_group,
        second_factor_groups=[dev_group] if by_group else [],
    )
    sign_in(client, "dana")

    page, rest = client.get("/tasks/"), client.get("/api/v1/tasks/")
    enrolled(client)

    assert page["Location"] == reverse("mfa_index")
    assert rest.status_code == 403
    assert rest.json()["code"] == "second_factor"
    assert client.get("/tasks/").status_code == 200


def test_a_link_asks_for_no_less_than_signing_in(boss: User, dana: User, client: Client) -> None:
    def join(browser: Client) -> str:
        made = invitation_renew(actor=boss, user=dana, address=lambda token: f"/join/{token}/")
        return str(browser.post(made.link, {"password": PASSWORD}).headers.get("Location", ""))

    assert join(Client()) == "/"
    sign_in(client, "dana")
    enrolled(client)
    late = Client()
    assert join(late) == reverse("mfa_authenticate")
    assert late.get("/").status_code == 302
    log_in_rules_change(
        actor=boss, allows_passwords=False, break_glass=boss, requires_second_factor=False
    )
    assert join(Client()) == ""


def test_without_passwords_only_the_break_glass_administrator_comes_in(
    boss: User, dana: User, client: Client
) -> None:
    log_in_rules_change(
        actor=boss, allows_passwords=False, break_glass=boss, requires_second_factor=False
    )

    page = client.get(reverse("sign_in"))

    assert 'name="password"' not in page.content.decode()
    assert "Break-glass" in text(page)
    assert sign_in(Client(), "dana") == ""
    assert sign_in(Client(), "boss") == "/"


def test_break_glass_is_an_administrator_with_a_password(
    boss: User, dana: User, root: User
) -> None:
    for nobody in (None, dana, root):
        with pytest.raises(BadInput, match="administrator who has a password"):
            log_in_rules_change(
                actor=boss,
                allows_passwords=False,
                break_glass=nobody,
                requires_second_factor=False,
            )


def test_the_administration_has_no_log_in_of_its_own(boss: User, client: Client) -> None:
    answer = client.post("/admin/login/", {"username": "boss", "password": PASSWORD})

    assert answer["Location"].startswith(reverse("sign_in"))
    assert "_auth_user_id" not in client.session


def test_secrets_are_sealed_again_with_a_new_key(
    dana: User, boss: User, client: Client, settings: Settings
) -> None:
    settings.RPM_SECRET_KEYS = [new_key()]
    sign_in(client, "dana")
    secret, _codes = enrolled(client)
    values = {"name": "C", "client_id": "c", "discovery_url": "https://a.example/x"}
    row = provider_create(actor=boss, preset="oidc", values=values | {"client_secret": "known"})

    settings.RPM_SECRET_KEYS = [new_key(), *settings.RPM_SECRET_KEYS]
    done = identity_secrets_reseal(Resealer())
    settings.RPM_SECRET_KEYS = settings.RPM_SECRET_KEYS[:1]

    row.refresh_from_db()
    assert done == (1, 2)
    assert unseal(row.client_secret_sealed, context=row.client_secret_context) == "known"
    other = Client()
    assert other.post(sign_in(other, "dana"), {"code": code_of(secret, 0)})["Location"] == "/"


def test_the_app_of_somebody_else_does_not_open(dana: User, boss: User, client: Client) -> None:
    sign_in(client, "dana")
    enrolled(client)
    for factor in Authenticator.objects.filter(user=dana):
        moved = Authenticator.objects.create(user=boss, type=factor.type, data=dict(factor.data))
        stored = Authenticator.objects.get(pk=moved.pk).wrap()
        with pytest.raises(SealMismatch, match="second_factor"):
            stored.validate_code("123456")


def test_no_page_of_allauths_own_is_there(client: Client) -> None:
    for path in ("/accounts/login/", "/accounts/signup/", "/accounts/email/", "/signup/"):
        assert client.get(path).status_code == 404
