"""Authenticates the headers of a request that Django has not seen yet."""

from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.db import DatabaseError
from django.http import HttpRequest, parse_cookie

from apps.accounts.services.access import WrongSecret, access_by_header
from apps.accounts.session_store import SessionStore
from apps.core.bodies import address_of, has_login_headers, header_of
from apps.core.errors import TooMany, Unavailable


async def scope_person(scope: Any) -> str | None:
    """The person whose credential, token or session the headers carry.

    Raises:
        Unavailable: the database is away.
    """
    cookie = header_of(scope["headers"], "cookie")
    header = header_of(scope["headers"], "authorization")
    if not has_login_headers(cookie=cookie, authorization=header):
        return None
    # In a thread of its own: the shared one would let requests of others wait.
    look_up = database_sync_to_async(_look_up, thread_sensitive=False)
    return await look_up(header, cookie, address_of(scope))


def _look_up(header: str, cookie: str, address: str) -> str | None:
    try:
        return _by_header(header, address) if header else _by_session(cookie)
    except DatabaseError as error:
        raise Unavailable("The database is away. Try again.") from error


def _by_header(header: str, address: str) -> str | None:
    try:
        access = access_by_header(header, address=address)
    except (WrongSecret, TooMany):
        return None
    return str(access.user.pk) if access else None


def _by_session(cookie: str) -> str | None:
    request = HttpRequest()
    request.session = SessionStore(parse_cookie(cookie).get(settings.SESSION_COOKIE_NAME))
    user = get_user(request)
    return str(user.pk) if user.is_authenticated else None
