"""Notes who was here, and with which browser."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.http import HttpRequest, HttpResponse
from django.utils.functional import SimpleLazyObject

from apps.accounts.models import User
from apps.accounts.services.presence import person_seen
from apps.accounts.services.sessions import session_note
from apps.core.origin import client_address

Handler = Callable[[HttpRequest], HttpResponse]


def last_active(get_response: Handler) -> Handler:
    """After each request of somebody who is known by then; nobody is looked up for it.

    Not for whom a service account acts: they are not here.
    """

    def handle(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        known = request.__dict__.get("user")
        if type(known) is SimpleLazyObject:
            known = request.__dict__.get("_cached_user")
        if isinstance(known, User) and getattr(known, "acted_by_id", None) is None:
            person_seen(user=known)
            if _is_of_session(request, known):
                _note(request, known)
        return response

    return handle


def session_began(*, request: HttpRequest | None, user: User, **_: Any) -> None:
    """Somebody signed in, by whatever way."""
    if request is not None and hasattr(request, "session"):
        _note(request, user)


def _is_of_session(request: HttpRequest, user: User) -> bool:
    """Whether a browser's session says who it is; programs have none, and none is read for them."""
    session = request.session
    return session.accessed and session.get(SESSION_KEY) == str(user.pk)


def _note(request: HttpRequest, user: User) -> None:
    key = request.session.session_key
    if key is not None:
        agent = request.headers.get("User-Agent", "")
        session_note(user=user, key=key, address=client_address(request), agent=agent)
