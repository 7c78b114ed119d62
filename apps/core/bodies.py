"""A bound on what an ASGI server takes in before Django has seen a request."""

from asgiref.typing import (
    ASGI3Application,
    ASGIReceiveCallable,
    ASGIReceiveEvent,
    ASGISendCallable,
    Scope,
)
from django.conf import settings


def bounded(application: ASGI3Application) -> ASGI3Application:
    """Hang up on whoever sends more than `RPM_LARGEST_BODY` bytes without saying so.

    Django writes a whole body to disk before any of our code runs. One that says how long it is
    gets an answer from `apps.core.headers`.
    """

    async def handle(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        taken = 0

        async def counted() -> ASGIReceiveEvent:
            nonlocal taken
            event = await receive()
            if event["type"] == "http.request":
                taken += len(event.get("body", b""))
                if taken > settings.RPM_LARGEST_BODY:
                    return {"type": "http.disconnect"}
            return event

        await application(scope, counted, send)

    return handle
