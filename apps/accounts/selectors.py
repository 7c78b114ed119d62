"""Who somebody is, in terms of groups; and the people and groups that somebody may look at."""

from datetime import UTC, datetime

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group
from django.db.models import Max, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Greatest

from apps.accounts.models import ADMINS, QUEUE_ADMINS, Credential, PersonStatus, User

# Before everybody: what a list sorts by has a value for those, too, who never came.
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
STATUSES = {
    PersonStatus.ACTIVE: Q(is_active=True, is_pending=False),
    PersonStatus.PENDING: Q(is_active=True, is_pending=True),
    PersonStatus.DEACTIVATED: Q(is_active=False),
}

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


def people_visible_to(user: Person) -> QuerySet[User]:
    """Everybody but service accounts, for administrators, with `last_active` (or `NEVER`)."""
    if not is_admin(user):
        return User.objects.none()
    return with_last_active(User.objects.filter(is_service=False))


def with_last_active(users: QuerySet[User]) -> QuerySet[User]:
    """Annotates `last_active`: by a session or a credential, whichever was later."""
    used = Credential.objects.filter(user=OuterRef("pk")).order_by().values("user")
    last = Subquery(used.annotate(last=Max("last_used_at")).values("last"))
    return users.annotate(
        last_active=Greatest(Coalesce("last_active_at", NEVER), Coalesce(last, NEVER))
    )


def people_named(rows: QuerySet[User], word: str) -> QuerySet[User]:
    """Those whose names or e-mail address contain every part of `word`."""
    for part in word.split():
        rows = rows.filter(
            Q(username__icontains=part)
            | Q(first_name__icontains=part)
            | Q(last_name__icontains=part)
            | Q(email__icontains=part)
        )
    return rows


def groups_visible_to(user: Person) -> QuerySet[Group]:
    """All groups, for administrators."""
    return Group.objects.all() if is_admin(user) else Group.objects.none()


def administrators_left(*, without: User | None = None) -> bool:
    """Whether somebody administers who can sign in."""
    rows = User.objects.filter(
        groups__name=ADMINS, is_active=True, is_pending=False, is_service=False
    )
    return (rows.exclude(pk=without.pk) if without is not None else rows).exists()
