"""Permissions of whole endpoints. Selectors scope what the user sees in them.

DRF loads this with its views, so it cannot name their class.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from rest_framework.exceptions import NotAuthenticated
from rest_framework.permissions import SAFE_METHODS, IsAuthenticated
from rest_framework.request import Request

from apps.accounts.models import Scope, User
from apps.accounts.selectors import is_admin, is_queue_admin, manages_people
from apps.accounts.services.access import ACT_FOR, CredentialAccess
from apps.core.errors import NotAllowed

View = TypeVar("View", bound=Callable[..., Any])


class ScopeMissing(NotAllowed):
    """The credential is not for this, whatever its owner may do."""

    code = "scope"

    def __init__(self, required: Scope) -> None:
        super().__init__(
            f"This credential is not for this: it takes one with the scope {required.value!r}.",
            fields={"scope": required.value},
        )


class HasScope(IsAuthenticated):
    """Lets signed-in users pass, as far as the scope of their credential goes. Every view has it.

    Safe methods take the scope `read`. Others take what the view says in `scope_to_write`; where
    that is `enqueue`, they reach the user's own tasks only. By default they take `administer`.
    A service account acts for an owner only where the view says `allows_acting`.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        if not super().has_permission(request, view):
            return False
        if ACT_FOR in request.headers and getattr(request.user, "acted_by_id", None) is None:
            wrong = "is for credentials of service accounts: leave it out"
            raise NotAllowed(f"{ACT_FOR} {wrong}.", fields={ACT_FOR: wrong})
        if ACT_FOR in request.headers and not getattr(view, "allows_acting", False):
            wrong = "is for tasks and what they are described with: leave it out here"
            raise NotAllowed(f"{ACT_FOR} {wrong}.", fields={ACT_FOR: wrong})
        scope_check(request, _required_scope(request, view))
        return True

    def has_object_permission(self, request: Request, view: Any, obj: Any) -> bool:
        """For tasks; `view` calls it for the task that it is about to change."""
        is_theirs = getattr(obj, "owner_id", None) == request.user.pk
        if _required_scope(request, view) is Scope.ENQUEUE and not is_theirs:
            scope_check(request, Scope.ADMINISTER)
        return True


class IsAdmin(HasScope):
    """Administrators."""

    message = "This is for administrators."

    def has_permission(self, request: Request, view: Any) -> bool:
        return super().has_permission(request, view) and is_admin(request.user)


class IsPeopleAdmin(HasScope):
    """Administrators, and those of a tenant, who see and change the tenant's objects."""

    message = "This is for administrators."

    def has_permission(self, request: Request, view: Any) -> bool:
        return super().has_permission(request, view) and manages_people(request.user)


class IsQueueAdmin(HasScope):
    """Administrators and queue administrators."""

    message = "This is for administrators of queues."

    def has_permission(self, request: Request, view: Any) -> bool:
        return super().has_permission(request, view) and is_queue_admin(request.user)


def person(request: Request) -> User:
    """The user of the request.

    Raises:
        NotAuthenticated: there is none; the endpoint lacks its permission by mistake.
    """
    if not isinstance(request.user, User):
        raise NotAuthenticated
    return request.user


def scope_check(request: Request, required: Scope) -> None:
    """Require a scope of the request's credential; sessions have every scope.

    Raises:
        ScopeMissing: the credential is for less.
    """
    access = request.auth
    if isinstance(access, CredentialAccess) and not access.scope.covers(required):
        raise ScopeMissing(required)


def scope_to_write(scope: Scope) -> Callable[[View], View]:
    """Mark a function view with the scope that its unsafe methods take."""

    def mark(view: View) -> View:
        view.cls.scope_to_write = scope  # type: ignore[attr-defined]  # DRF's class of the function
        return view

    return mark


def allows_acting(view: View) -> View:
    """Mark a function view: service accounts may act for owners there."""
    view.cls.allows_acting = True  # type: ignore[attr-defined]  # DRF's class of the function
    return view


def _required_scope(request: Request, view: Any) -> Scope:
    if request.method in SAFE_METHODS:
        return Scope.READ
    required: Scope = getattr(view, "scope_to_write", Scope.ADMINISTER)
    return required
