"""The signed-in user of a view, and what the view demands of them."""

from collections.abc import Callable

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest

from apps.accounts.models import User
from apps.accounts.selectors import is_admin, manages_people, tenants_administered_by


def person(request: HttpRequest) -> User:
    """The signed-in person of a view that demands one.

    Raises:
        PermissionDenied: nobody is signed in.
    """
    if not isinstance(request.user, User):
        raise PermissionDenied
    return request.user


def require_administrator(request: HttpRequest) -> User:
    """The signed-in administrator; for others the page does not exist.

    Raises:
        Http404: the user is not one.
    """
    return _only(request, is_admin)


def require_people_administrator(request: HttpRequest) -> User:
    """The signed-in administrator of people and groups, in the installation or a tenant.

    Raises:
        Http404: the user is not one.
    """
    return _only(request, manages_people)


def require_policy_administrator(request: HttpRequest) -> User:
    """The signed-in administrator of policies, anywhere or below the top of a tenant.

    Raises:
        Http404: the user is not one.
    """
    return _only(request, may_make_policies)


def may_make_policies(user: User) -> bool:
    """Whether the user administers policies anywhere or in a tenant."""
    return is_admin(user) or bool(tenants_administered_by(user))


def _only(request: HttpRequest, is_allowed: Callable[[User], bool]) -> User:
    user = person(request)
    if not is_allowed(user):
        raise Http404
    return user
