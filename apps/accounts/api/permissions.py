"""Who may use a whole endpoint. What somebody sees in it is scoped by selectors."""

from rest_framework.exceptions import NotAuthenticated
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from apps.accounts.models import User
from apps.accounts.selectors import is_admin, is_queue_admin


class Admins(BasePermission):
    """Administrators."""

    message = "This is for administrators."

    def has_permission(self, request: Request, _view: APIView) -> bool:
        return is_admin(request.user)


class QueueAdmins(BasePermission):
    """Administrators and queue administrators."""

    message = "This is for administrators of queues."

    def has_permission(self, request: Request, _view: APIView) -> bool:
        return is_queue_admin(request.user)


def person(request: Request) -> User:
    """Who is signed in.

    Raises:
        NotAuthenticated: nobody; the endpoint let them in by mistake.
    """
    if not isinstance(request.user, User):
        raise NotAuthenticated
    return request.user
