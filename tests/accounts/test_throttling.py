"""Clients that guess, or send too many requests, wait; no others do."""

import base64
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.accounts.services import throttling
from apps.accounts.services.credentials import credential_create
from apps.accounts.services.people import user_create
from apps.core.errors import TooMany
from apps.core.rate_counters import RateCounters, RateMeter
from tests.page_words import without_tokens

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("one_long_minute")]

PASSWORD = "Correct-horse-7-battery"
HERE, ELSEWHERE = "198.51.100.7", "203.0.113.9"


def basic(key: str, secret: str) -> dict[str, str]:
    pair = base64.b64encode(f"{key}:{secret}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


@pytest.fixture
def right(alice: User) -> dict[str, str]:
    credential, secret = credential_create(user=alice, label="")
    return basic(credential.key, secret)


@pytest.fixture
def visitor(settings: Any) -> Client:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    user_create(username="vera", password=PASSWORD)
    return Client(REMOTE_ADDR=HERE)


def request_queues(headers: dict[str, str], *, address: str = HERE) -> Any:
    return APIClient(REMOTE_ADDR=address).get("/api/v1/queues/", headers=headers)


def test_a_thousand_wrong_secrets_end_in_429_and_right_ones_work_elsewhere(
    right: dict[str, str],
) -> None:
    answers = [request_queues(basic(f"KEY{turn}", "guess")) for turn in range(1000)]

    assert {one.status_code for one in answers[:60]} == {401}
    assert {one.status_code for one in answers[61:]} == {429}
    last = answers[-1]
    assert last.json()["code"] == "throttled"
    assert int(last["Retry-After"]) > 0
    assert request_queues(right).status_code == 429
    assert request_queues(right, address=ELSEWHERE).status_code == 200


def test_tokens_that_somebody_made_up_are_guesses_too() -> None:
    answers = [request_queues({"Authorization": f"Bearer {turn}"}) for turn in range(70)]

    assert [answers[0].status_code, answers[-1].status_code] == [401, 429]


def test_whoever_is_guessed_at_from_everywhere_is_not_kept_out(right: dict[str, str]) -> None:
    key = base64.b64decode(right["Authorization"].removeprefix("Basic ")).decode().split(":")[0]

    answers = [request_queues(basic(key, "guess"), address=f"192.0.2.{turn}") for turn in range(30)]

    assert [answers[0].status_code, answers[-1].status_code] == [401, 429]
    assert request_queues(right, address="192.0.2.200").status_code == 200


def test_a_credential_that_asks_too_often_waits(settings: Any, right: dict[str, str]) -> None:
    settings.RPM_REQUESTS_PER_CREDENTIAL = 3

    answers = [request_queues(right, address=f"192.0.2.{turn}") for turn in range(5)]

    assert [one.status_code for one in answers[:3]] == [200, 200, 200]
    assert answers[-1].status_code == 429
    assert int(answers[-1]["Retry-After"]) > 0


def test_an_address_that_asks_too_often_waits_whoever_asks(
    settings: Any, right: dict[str, str]
) -> None:
    settings.RPM_REQUESTS_PER_ADDRESS = 3

    answers = [request_queues({} if turn % 2 else right) for turn in range(5)]

    assert [one.status_code for one in answers[:3]] == [200, 401, 200]
    assert answers[-1].status_code == 429
    assert request_queues(right, address=ELSEWHERE).status_code == 200


def test_rest_answers_while_redis_is_away(
    settings: Any, right: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    alone = RateCounters()
    monkeypatch.setattr(throttling, "counters", alone)
    monkeypatch.setattr(throttling, "meter", RateMeter(alone))

    assert request_queues(right).status_code == 200
    answers = [request_queues(basic("KEY", "guess")) for _ in range(70)]

    assert answers[-1].status_code == 429


def sign_in(client: Client, username: str, password: str) -> Any:
    return client.post("/sign-in/", {"username": username, "password": password})


@pytest.mark.parametrize("username", ["vera", "nobody-of-that-name"])
def test_wrong_passwords_make_one_wait_longer_and_longer(visitor: Client, username: str) -> None:
    answers = [sign_in(visitor, username, "wrong") for _ in range(8)]

    assert [one.status_code for one in answers] == [400] * 5 + [429] * 3
    wait_s = int(answers[-1]["Retry-After"])
    assert 0 < wait_s <= 5
    words = f"Too many wrong passwords: try again in {wait_s} seconds"
    assert words in answers[-1].content.decode()


def test_the_wait_doubles_up_to_its_most(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[tuple[int, bool]] = []
    hold = throttling.counters.hold_new
    held = [f"{name}:held" for name, _ in throttling._log_in_keys("vera", HERE)]

    def noted(name: str, for_s: float) -> bool:
        is_new = hold(name, for_s)
        if name == held[0]:
            waits.append((round(for_s), 0 < throttling.counters.held_s([name]) <= for_s))
        return is_new

    monkeypatch.setattr(throttling.counters, "hold_new", noted)
    for number in range(16):
        assert len(waits) == max(0, number - 4)
        throttling.log_in_admit(username="vera", address=HERE)
        throttling.counters.forget(held)

    assert waits == [(s, True) for s in (5, 10, 20, 40, 80, 160, 320, 640, 900, 900, 900, 900)]


def test_of_many_passwords_at_once_no_more_are_checked() -> None:
    admitted = threading.Barrier(40)

    def is_checked(_: int) -> bool:
        admitted.wait()
        try:
            throttling.log_in_admit(username="vera", address=HERE)
        except TooMany:
            return False
        return True

    with ThreadPoolExecutor(40) as many:
        checked = sum(many.map(is_checked, range(40)))

    assert checked == 5
    with pytest.raises(TooMany):
        throttling.log_in_admit(username="vera", address=HERE)


def test_a_right_password_gives_its_try_back() -> None:
    for _ in range(30):
        throttling.log_in_succeeded(throttling.log_in_admit(username="vera", address=HERE))

    for turn in range(20):
        throttling.log_in_admit(username=f"name-{turn}", address=HERE)
    with pytest.raises(TooMany):
        throttling.log_in_admit(username="vera", address=HERE)


def test_not_even_the_right_password_is_looked_at_while_one_waits(visitor: Client) -> None:
    for _ in range(5):
        sign_in(visitor, "vera", "wrong")

    assert sign_in(visitor, "vera", PASSWORD).status_code == 429
    assert sign_in(Client(REMOTE_ADDR=ELSEWHERE), "vera", PASSWORD).status_code == 302


def test_a_right_password_forgets_the_wrong_ones(visitor: Client) -> None:
    for _ in range(2):
        for _ in range(4):
            assert sign_in(visitor, "vera", "wrong").status_code == 400
        assert sign_in(visitor, "vera", PASSWORD).status_code == 302


def test_a_name_is_the_same_however_it_is_typed(visitor: Client) -> None:
    for name in ("vera", "VERA", "Vera ", " vera", "verA"):
        sign_in(visitor, name, "wrong")

    assert sign_in(visitor, "vera", PASSWORD).status_code == 429


def test_an_address_that_tries_many_names_waits_for_all(visitor: Client) -> None:
    answers = [sign_in(visitor, f"name-{turn}", "wrong") for turn in range(22)]

    assert [one.status_code for one in answers] == [400] * 20 + [429] * 2
    assert sign_in(visitor, "vera", PASSWORD).status_code == 429


def test_names_that_there_are_and_that_there_are_not_are_answered_alike(visitor: Client) -> None:
    robot = user_create(username="robot", password=PASSWORD)
    gone = user_create(username="gone", password=PASSWORD)
    User.objects.filter(pk=robot.pk).update(is_service=True)
    User.objects.filter(pk=gone.pk).update(is_active=False)

    pages = {
        sign_in(Client(REMOTE_ADDR=HERE), name, password).content.decode().replace(name, "NAME")
        for name, password in [
            ("vera", "wrong"),
            ("nobody", "wrong"),
            ("robot", PASSWORD),
            ("gone", PASSWORD),
        ]
    }

    assert len({without_tokens(page) for page in pages}) == 1
