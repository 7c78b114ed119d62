"""Notes the activity of users, and their browsers."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.http import HttpRequest, HttpResponse
from django.utils.functional import SimpleLazyObject

from apps.accounts.models import User
from apps.accounts.services.presence import person_activity_note
from apps.accounts.services.sessions import session_note
from apps.core.origin import client_address

Handler = Callable[[HttpRequest], HttpResponse]


def last_active(get_response: Handler) -> Handler:
    """Note the user's activity after each authenticated request, without a look-up of its own.

    Not for a user for whom a service account acts: they are not here.
    """

    def handle(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        known = request.__dict__.get("user")
        if type(known) is SimpleLazyObject:
            known = request.__dict__.get("_cached_user")
        if isinstance(known, User) and getattr(known, "acted_by_id", None) is None:
            person_activity_note(user=known)
            if _is_of_session(request, known):
                _note(request, known)
        return response

    return handle


def session_start_note(*, request: HttpRequest | None, user: User, **_: Any) -> None:
    """Note a sign-in, whatever its method."""
    if request is not None and hasattr(request, "session"):
        _note(request, user)


def _is_of_session(request: HttpRequest, user: User) -> bool:
    """Whether a browser's session authenticates the request; for programs none is read."""
    session = request.session
    return session.accessed and session.get(SESSION_KEY) == str(user.pk)


def _note(request: HttpRequest, user: User) -> None:
    key = request.session.session_key
    if key is not None:
        agent = request.headers.get("User-Agent", "")
        session_note(user=user, key=key, address=client_address(request), agent=agent)
