"""Who somebody is, in terms of groups."""

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group
from django.db.models import QuerySet

from apps.accounts.models import ADMINS, QUEUE_ADMINS, Credential, User

Person = User | AbstractBaseUser | AnonymousUser


def group_names(user: Person) -> frozenset[str]:
    """Names of the groups of an active user; remembered on the object for its request."""
    if not isinstance(user, User) or not user.is_active:
        return frozenset()
    known: frozenset[str] | None = getattr(user, "_group_names", None)
    if known is None:
        known = frozenset(Group.objects.filter(user=user).values_list("name", flat=True))
        user._group_names = known  # type: ignore[attr-defined]  # memo on the instance
    return known


def group_ids(user: Person) -> frozenset[int]:
    """Ids of the groups of an active user."""
    if not isinstance(user, User) or not user.is_active:
        return frozenset()
    return frozenset(Group.objects.filter(user=user).values_list("id", flat=True))


def is_admin(user: Person) -> bool:
    """Administrators may do everything."""
    return ADMINS in group_names(user)


def is_queue_admin(user: Person) -> bool:
    """May create, rename, delete and reorder queues."""
    return bool({ADMINS, QUEUE_ADMINS} & group_names(user))


def may_enter_admin(user: Person) -> bool:
    """The admin site is for administrators and queue administrators."""
    return isinstance(user, User) and not user.is_service and is_queue_admin(user)


def credentials_of(user: Person) -> QuerySet[Credential]:
    """One's own credentials; revoked ones stay in the list."""
    if not isinstance(user, User):
        return Credential.objects.none()
    return Credential.objects.filter(user=user)
