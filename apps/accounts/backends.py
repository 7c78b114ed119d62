"""Who may log in, and the rights that follow from the built-in groups."""

from typing import Any

from django.contrib.auth.backends import BaseBackend, ModelBackend
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

from apps.accounts.models import User
from apps.accounts.selectors import is_admin, is_queue_admin, may_enter_admin


class PersonBackend(ModelBackend):
    """Names and passwords of people; service accounts have credentials and no log-in."""

    def user_can_authenticate(self, user: User | AnonymousUser | None) -> bool:
        return super().user_can_authenticate(user) and not getattr(user, "is_service", False)


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
