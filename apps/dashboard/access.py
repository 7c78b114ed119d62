"""Who asks."""

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest

from apps.accounts.models import User
from apps.accounts.selectors import is_admin


def person(request: HttpRequest) -> User:
    """The signed-in person of a view that demands one.

    Raises:
        PermissionDenied: nobody is signed in.
    """
    if not isinstance(request.user, User):
        raise PermissionDenied
    return request.user


def administrator(request: HttpRequest) -> User:
    """The signed-in administrator; for others the page does not exist.

    Raises:
        Http404: somebody else asks.
    """
    user = person(request)
    if not is_admin(user):
        raise Http404
    return user
