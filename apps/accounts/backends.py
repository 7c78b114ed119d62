"""Authentication by password, and the permissions that follow from the built-in groups."""

from typing import Any

from django.contrib.auth.backends import BaseBackend, ModelBackend
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.http import HttpRequest

from apps.accounts.models import User
from apps.accounts.selectors import (
    is_admin,
    is_queue_admin,
    may_enter_admin,
    may_use_password,
)
from apps.accounts.services.throttling import log_in_admit, log_in_succeeded
from apps.core.origin import client_address


class PersonBackend(ModelBackend):
    """Names and passwords of people; service accounts have credentials and no log-in.

    Requests are throttled after too many wrong passwords. Unknown names are counted and answered
    like known ones, and take as long.
    """

    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> User | None:
        """The person.

        Raises:
            TooMany: no password is checked for now.
        """
        name = username if username is not None else kwargs.get(User.USERNAME_FIELD)
        if request is None or name is None or password is None:
            return self._person(request, username, password, **kwargs)
        address = client_address(request)
        attempt = log_in_admit(username=name, address=address)
        user = self._person(request, username, password, **kwargs)
        if user is not None:
            log_in_succeeded(attempt)
        return user

    def get_all_permissions(
        self,
        user_obj: AbstractBaseUser | AnonymousUser,  # noqa: ARG002  # Django's
        obj: Any = None,  # noqa: ARG002
    ) -> set[str]:
        """Nothing: Django's permissions of models are access rules on a whole kind of objects,
        which selectors read; the administration site goes by the built-in groups alone.
        """
        return set()

    def user_can_authenticate(self, user: User | AnonymousUser | None) -> bool:
        return super().user_can_authenticate(user) and not getattr(user, "is_service", False)

    def _person(
        self, request: HttpRequest | None, name: str | None, password: str | None, **kwargs: Any
    ) -> User | None:
        """The person with this name and password; with passwords off, only the break-glass one."""
        user = super().authenticate(request, name, password, **kwargs)
        return user if isinstance(user, User) and may_use_password(user) else None


class ExternalBackend(PersonBackend):
    """Keeps the sessions of identity-provider log-ins; it authenticates nobody itself."""

    def authenticate(  # type: ignore[override]  # Django passes them by name
        self,
        request: HttpRequest | None,  # noqa: ARG002  # Django's
        **_kwargs: Any,
    ) -> User | None:
        return None


class GroupRoleBackend(BaseBackend):
    """`Admins` may do everything, `Queue admins` everything with queues; nobody else anything."""

    def has_perm(
        self,
        user_obj: AbstractBaseUser | AnonymousUser,
        perm: str,
        obj: Any = None,  # noqa: ARG002  # Django passes it by name
    ) -> bool:
        if is_admin(user_obj):
            return True
        return perm.startswith("policies.") and perm.endswith("_queue") and is_queue_admin(user_obj)

    def has_module_perms(self, user_obj: AbstractBaseUser | AnonymousUser, app_label: str) -> bool:
        if is_admin(user_obj):
            return True
        return app_label == "policies" and may_enter_admin(user_obj)
