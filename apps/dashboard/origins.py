"""Which pages may open our sockets: a browser sends one's cookies along for any page that asks."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import validate_host


class OwnOrigin:
    """Lets in pages of this very host and port, and those of RPM_ORIGINS.

    Who says no origin is no browser; programs bring a credential and go another way.
    """

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        inner = self.application if is_own(headers) else WebsocketDenier()
        return await inner(scope, receive, send)


def is_own(headers: Mapping[bytes, str]) -> bool:
    """Whether these headers come from a page of ours."""
    host = headers.get(b"host", "").lower()
    if not validate_host(_without_port(host), settings.ALLOWED_HOSTS):
        return False
    origin = headers.get(b"origin", "")
    parts = urlsplit(origin.lower())
    is_page = parts.scheme in {"http", "https"} and bool(parts.netloc)
    return is_page and (
        parts.netloc == host or origin.lower() in map(str.lower, settings.CSRF_TRUSTED_ORIGINS)
    )


def _without_port(host: str) -> str:
    """An address in brackets keeps them, as in ALLOWED_HOSTS."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


own_origin = OwnOrigin
