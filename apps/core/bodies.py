"""Bounds on what a server takes in before Django has seen a request."""

import asyncio
from collections.abc import Mapping

from asgiref.typing import (
    ASGI3Application,
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    ASGISendCallable,
    HTTPScope,
    Scope,
)
from django.conf import settings

# The one address that takes many tasks at once.
BULK_PATH = "/api/v1/tasks/bulk"


def largest_body(path: str, headers: Mapping[str, str]) -> int:
    """How many bytes a request to this path may send.

    Args:
        headers: `authorization` and `cookie`, as far as they are there. Without one of them nobody
            is signed in, whatever the rest says.
    """
    if path.rstrip("/") == BULK_PATH and _names_somebody(headers):
        return settings.RPM_LARGEST_BODY
    most = settings.RPM_USUAL_BODY if _names_somebody(headers) else settings.RPM_UNKNOWN_BODY
    return min(most, settings.RPM_LARGEST_BODY)


def bounded(application: ASGI3Application) -> ASGI3Application:
    """Hang up on whoever sends more than `largest_body` without saying so, or too slowly.

    Django writes a whole body to disk before any of our code runs. One that says how long it is
    gets an answer from `apps.core.headers`.
    """

    async def handle(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] == "http":
            receive = _bounded_receive(scope, receive)
        await application(scope, receive, send)

    return handle


def _bounded_receive(scope: HTTPScope, receive: ASGIReceiveCallable) -> ASGIReceiveCallable:
    named = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    most = largest_body(scope["path"], named)
    until = asyncio.get_running_loop().time() + settings.RPM_BODY_S
    taken = 0
    is_whole = False

    async def bounded_event() -> ASGIReceiveEvent:
        nonlocal taken, is_whole
        if is_whole:
            # What comes now is that the other side has gone, whenever that is.
            return await receive()
        try:
            async with asyncio.timeout_at(until):
                event = await receive()
        except TimeoutError:
            return {"type": "http.disconnect"}
        if event["type"] == "http.request":
            taken += len(event.get("body", b""))
            is_whole = not event.get("more_body", False)
            if taken > most:
                return {"type": "http.disconnect"}
        return event

    return bounded_event


def _names_somebody(headers: Mapping[str, str]) -> bool:
    is_in_session = f"{settings.SESSION_COOKIE_NAME}=" in headers.get("cookie", "")
    return is_in_session or bool(headers.get("authorization"))
