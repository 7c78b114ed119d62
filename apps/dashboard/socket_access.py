"""Sockets of programs, which are opened with a credential or its token instead of a session."""

from collections.abc import Awaitable, Callable
from typing import Any

from channels.db import database_sync_to_async
from django.contrib.auth.models import AnonymousUser

from apps.accounts.services.access import ACT_FOR, CredentialAccess, WrongSecret, access_by_header
from apps.accounts.services.throttling import address_admit
from apps.core.bodies import address_of, header_of
from apps.core.errors import TooMany
from apps.dashboard.origins import own_origin

Scope = dict[str, Any]
# Channels and asgiref type the applications of ASGI in two ways that do not fit.
Application = Callable[[Any, Any, Any], Awaitable[Any]]


def with_credentials(sockets: Application, *, browsers: Application) -> Application:
    """What carries `Authorization` goes to `sockets` as its person, all else to `browsers`.

    The consumer finds `user` and `access` in the scope, and closes where no user is recognized.
    Programs send no origin; one that is sent must be ours, as for browsers.
    """
    from_pages = own_origin(sockets)

    async def application(scope: Scope, receive: Any, send: Any) -> None:
        header = _header(scope, "Authorization")
        if not header:
            await browsers(scope, receive, send)
            return
        access, is_too_many = await database_sync_to_async(_access)(scope, header)
        known = {
            **scope,
            "user": access.user if access else AnonymousUser(),
            "access": access,
            "is_too_many": is_too_many,
        }
        behind = from_pages if _header(scope, "Origin") else sockets
        await behind(known, receive, send)

    return application


def _access(scope: Scope, header: str) -> tuple[CredentialAccess | None, bool]:
    """What the header gives access to, and whether it was throttled unread."""
    address = address_of(scope)
    try:
        address_admit(address)
        access = access_by_header(header, address=address)
    except TooMany:
        return None, True
    except WrongSecret:
        return None, False
    # A socket shows what its own user sees; there is no impersonation on it.
    return (None if _header(scope, ACT_FOR) else access), False


def _header(scope: Scope, name: str) -> str:
    return header_of(scope.get("headers", []), name)
