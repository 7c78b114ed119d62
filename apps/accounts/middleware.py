"""Notes who was here."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils.functional import SimpleLazyObject

from apps.accounts.models import User
from apps.accounts.services.presence import person_seen

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
        return response

    return handle
