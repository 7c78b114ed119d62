"""Bounds on what a server takes in before Django has seen a request."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from asgiref.typing import (
    ASGI3Application,
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    ASGISendCallable,
    HTTPScope,
    Scope,
)
from django.conf import settings

from apps.core.errors import BodyTooLarge, BodyTooSlow, RpmError, TooMany
from apps.core.origin import client_address_of, one_host

# The one address that takes many tasks at once.
BULK_PATH = "/api/v1/tasks/bulk"
# Bytes of bodies that are kept at a time for one address, and for one person who is signed in.
MOST_OF_ADDRESS = 40_000_000
MOST_OF_PERSON = 200_000_000
# Bytes of each body that do not count: an address at its bound can still send a form.
UNCOUNTED_BYTES = 64 * 1024
RETRY_AFTER_S = 5
# Where a scope says how large its body may be, and why the rest of it is not read.
LARGEST, REFUSAL = "rpm.largest_body", "rpm.refusal"

# Identifies the user who is signed in by the headers of a scope, or None.
Identify = Callable[[HTTPScope], Awaitable[str | None]]
_END: ASGIReceiveEvent = {"type": "http.request", "body": b"", "more_body": False}
# Of this process, by person or address.
_held_bytes: Counter[str] = Counter()


def largest_body(path: str, *, is_known: bool) -> int:
    """How many bytes a request to this path may send, by a signed-in user or anonymously."""
    if not is_known:
        return min(settings.RPM_UNKNOWN_BODY, settings.RPM_LARGEST_BODY)
    if path.rstrip("/") == BULK_PATH:
        return settings.RPM_LARGEST_BODY
    return min(settings.RPM_USUAL_BODY, settings.RPM_LARGEST_BODY)


def bound_bodies(application: ASGI3Application, *, identify: Identify) -> ASGI3Application:
    """Read no more of a body than `largest_body`, within RPM_BODY_S.

    Django writes a whole body to disk before any of our code runs, so a refusal here ends the
    body, and `apps.core.headers` answers. Headers count as a user's only once `identify` has found
    the user; it is called only for a body that is too large otherwise.
    """

    async def handle(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] != "http":
            await application(scope, receive, send)
            return
        body = _Body(scope, receive, identify)
        try:
            await application(scope, body.receive, send)
        finally:
            body.release()

    return handle


def has_login_headers(*, cookie: str, authorization: str) -> bool:
    """Whether headers claim a signed-in user; nothing is looked up."""
    return bool(authorization) or f"{settings.SESSION_COOKIE_NAME}=" in cookie


class _Body:
    """Reads the body of one request, up to its bounds."""

    def __init__(self, scope: HTTPScope, receive: ASGIReceiveCallable, identify: Identify) -> None:
        self._scope: Any = scope
        self._receive = receive
        self._identify = identify
        self._until = asyncio.get_running_loop().time() + settings.RPM_BODY_S
        self._received = self._counted = 0
        self._is_begun = self._is_over = self._is_looked_up = False
        self._person: str | None = None
        self._allow()

    async def receive(self) -> ASGIReceiveEvent:
        if self._is_over:
            return await self._end()
        try:
            async with asyncio.timeout_at(self._until):
                if not self._is_begun:
                    self._is_begun = True
                    await self._check(_declared_length(self._scope["headers"]))
                event = await self._receive()
                if event["type"] == "http.request":
                    await self._count(event)
        except TimeoutError:
            return self._refuse(BodyTooSlow(settings.RPM_BODY_S))
        except RpmError as error:
            return self._refuse(error)
        return event

    def release(self) -> None:
        """Stop counting the body of an answered request."""
        _held_bytes[self._key] -= self._counted
        if _held_bytes[self._key] <= 0:
            del _held_bytes[self._key]
        self._counted = 0

    async def _count(self, event: Any) -> None:
        self._received += len(event.get("body", b""))
        self._is_over = not event.get("more_body", False)
        await self._check(self._received)
        if self._is_one_too_many():
            await self._look_up()
        if self._is_one_too_many():
            raise TooMany(
                "Too many large requests at once. Try again.", retry_after_s=RETRY_AFTER_S
            )
        more = max(0, self._uncounted)
        _held_bytes[self._key] += more
        self._counted += more

    async def _check(self, size: int) -> None:
        """Raises BodyTooLarge if this sender may not send that many bytes."""
        if size > self._most:
            await self._look_up()
        if size > self._most:
            raise BodyTooLarge(self._most)

    async def _look_up(self) -> None:
        """Find out who is signed in, once."""
        if self._is_looked_up:
            return
        self._is_looked_up = True
        found = await self._identify(self._scope)
        if found is not None:
            self.release()
            self._person = found
            self._allow()

    def _is_one_too_many(self) -> bool:
        most = MOST_OF_ADDRESS if self._person is None else MOST_OF_PERSON
        return self._uncounted > 0 and _held_bytes[self._key] + self._uncounted > most

    @property
    def _uncounted(self) -> int:
        return max(0, self._received - UNCOUNTED_BYTES) - self._counted

    @property
    def _key(self) -> str:
        if self._person is not None:
            return f"person:{self._person}"
        return f"address:{one_host(address_of(self._scope))}"

    def _allow(self) -> None:
        self._most = largest_body(self._scope["path"], is_known=self._person is not None)
        self._scope[LARGEST] = self._most

    def _refuse(self, error: RpmError) -> ASGIReceiveEvent:
        self._scope[REFUSAL] = error
        self._is_over = True
        return _END

    async def _end(self) -> ASGIReceiveEvent:
        """Wait until the client disconnects, and drop the rest of a refused body."""
        while (event := await self._receive())["type"] == "http.request":
            pass
        return event


def header_of(headers: Iterable[tuple[bytes, bytes]], name: str) -> str:
    """The value of a header in a scope of ASGI; several are one list."""
    wanted = name.lower().encode()
    found = [value for key, value in headers if key.lower() == wanted]
    return ", ".join(value.decode("latin-1") for value in found)


def address_of(scope: Any) -> str:
    """The address that a scope of ASGI came from."""
    return client_address_of(
        {
            "REMOTE_ADDR": (scope.get("client") or ("",))[0],
            "HTTP_X_FORWARDED_FOR": header_of(scope["headers"], "x-forwarded-for"),
        }
    )


def _declared_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """The length that the headers declare; servers have checked that it is one."""
    declared = header_of(headers, "content-length")
    return int(declared) if declared.isascii() and declared.isdigit() else 0
