"""What is read of a body before Django sees the request."""

import asyncio
from base64 import b64encode
from typing import Any, cast

import pytest
from django.test import Client
from pytest_django import Settings

from apps.accounts.models import User
from apps.accounts.scope_person import scope_person
from apps.accounts.services.credentials import credential_create
from apps.core import bodies
from apps.core.bodies import REFUSAL, bound_bodies
from apps.core.errors import BodyTooLarge, BodyTooSlow, RpmError, TooMany


class Reader:
    """An application that reads a whole body, as Django does, and what is sent to it."""

    def __init__(self, *parts: bytes, known: str | None = None) -> None:
        self.parts = list(parts)
        self.known = known
        self.looked_up = 0
        self.read: list[bytes] = []
        self.after = ""
        self.scope: Any = {}

    def ask(self, path: str, *headers: tuple[bytes, bytes]) -> RpmError | None:
        """Why the body was refused, if it was."""
        self.scope = {"type": "http", "path": path, "headers": headers, "client": ("10.0.0.1", 1)}
        guarded = bound_bodies(cast(Any, self._application), identify=self._identify)
        asyncio.run(cast(Any, guarded(self.scope, self._receive, None)))  # type: ignore[arg-type]  # not used
        refusal: RpmError | None = self.scope.get(REFUSAL)
        return refusal

    async def _application(self, scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            event = await receive()
            self.read.append(event["body"])
            more = event["more_body"]
        self.after = (await receive())["type"]

    async def _receive(self) -> Any:
        if not self.parts:
            return {"type": "http.disconnect"}
        part = self.parts.pop(0)
        if part == b"wait":
            await asyncio.sleep(3600)
        return {"type": "http.request", "body": part, "more_body": bool(self.parts)}

    async def _identify(self, scope: Any) -> str | None:
        self.looked_up += 1
        return self.known


def test_a_body_ends_at_the_bound_and_its_rest_is_dropped(settings: Settings) -> None:
    settings.RPM_LARGEST_BODY = 100
    reader = Reader(*[b"x" * 40] * 5)

    refusal = reader.ask("/sign-in/")

    assert isinstance(refusal, BodyTooLarge)
    assert reader.read == [b"x" * 40, b"x" * 40, b""]
    assert (reader.parts, reader.after) == ([], "http.disconnect")


def test_a_body_that_comes_too_slowly_is_refused(settings: Settings) -> None:
    settings.RPM_BODY_S = 0.05
    reader = Reader(b"x", b"wait")

    refusal = reader.ask("/sign-in/")

    assert isinstance(refusal, BodyTooSlow)
    assert reader.read in ([b"x", b""], [b""])


@pytest.mark.parametrize(("known", "want"), [("7", None), (None, BodyTooLarge)])
def test_headers_count_once_somebody_was_found_by_them(
    known: str | None, want: type[RpmError] | None, settings: Settings
) -> None:
    settings.RPM_UNKNOWN_BODY = 50
    reader = Reader(*[b"x" * 40] * 5, known=known)

    refusal = reader.ask("/api/v1/tasks/bulk/", (b"authorization", b"Basic x"))

    assert (type(refusal) if refusal else None) is want
    assert reader.looked_up == 1


def test_nobody_is_looked_up_for_a_usual_body() -> None:
    reader = Reader(b"x" * 1000)

    assert reader.ask("/sign-in/", (b"cookie", b"sessionid=x")) is None
    assert reader.looked_up == 0


def test_bodies_kept_for_one_person_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MOST_OF_ADDRESS", 100_000)
    monkeypatch.setattr(bodies, "MOST_OF_PERSON", 200_000)
    parts = [b"x" * 50_000] * 5

    # 64 KiB of each are not counted.
    assert Reader(*parts, known="7").ask("/api/v1/tasks/") is None
    assert isinstance(Reader(*parts, b"x" * 50_000, known="7").ask("/api/v1/tasks/"), TooMany)
    assert isinstance(Reader(*parts).ask("/api/v1/tasks/"), TooMany)
    assert bodies._held_bytes == {}


def test_once_a_body_is_whole_an_answer_may_take_longer(settings: Settings) -> None:
    settings.RPM_BODY_S = 3600
    seen = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.append((await receive())["type"])
        settings.RPM_BODY_S = 0
        seen.append((await receive())["type"])

    events = iter([{"type": "http.request", "body": b""}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(events)

    async def nobody(_: Any) -> None:
        return None

    scope: Any = {"type": "http", "path": "/", "headers": []}
    asyncio.run(bound_bodies(application, identify=nobody)(scope, receive, None))  # type: ignore[arg-type]  # what is used of it

    assert seen == ["http.request", "http.disconnect"]


@pytest.mark.django_db(transaction=True)
def test_credentials_and_sessions_are_looked_up_and_nothing_else(alice: User) -> None:
    credential, secret = credential_create(user=alice, label="")
    client = Client()
    client.force_login(alice)
    pair = b64encode(f"{credential.key}:{secret}".encode()).decode()
    session = client.cookies["sessionid"].value

    def found(**headers: str) -> str | None:
        given = [(name.encode(), value.encode()) for name, value in headers.items()]
        return asyncio.run(scope_person({"headers": given, "client": ("10.0.0.1", 1)}))

    assert found(authorization=f"Basic {pair}") == str(alice.pk)
    assert found(cookie=f"a=b; sessionid={session}") == str(alice.pk)
    assert found(authorization="Basic eDp4") is None
    assert found(authorization="x", cookie=f"sessionid={session}") is None
    assert found(cookie="sessionid=x") is None
    assert found() is None
