"""Who somebody is, in terms of groups; and the people and groups that somebody may look at."""

from datetime import UTC, datetime

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group
from django.db.models import Count, Max, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Greatest
from django.utils import timezone

from apps.accounts.models import (
    ADMINS,
    QUEUE_ADMINS,
    Credential,
    IdentityProvider,
    LogInRules,
    PersonStatus,
    User,
)

# Before everybody: what a list sorts by has a value for those, too, who never came.
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
STATUSES = {
    PersonStatus.ACTIVE: Q(is_active=True, is_pending=False),
    PersonStatus.PENDING: Q(is_active=True, is_pending=True),
    PersonStatus.DEACTIVATED: Q(is_active=False),
}

Person = User | AbstractBaseUser | AnonymousUser
# What nobody holds while a service account acts for them.
ADMINISTERING = (ADMINS, QUEUE_ADMINS)


def groups_of(user: User) -> QuerySet[Group]:
    """The groups whose rights somebody has now: none that administers, where another acts."""
    groups = Group.objects.filter(user=user)
    return groups if user.acted_by_id is None else groups.exclude(name__in=ADMINISTERING)


def group_names(user: Person) -> frozenset[str]:
    """Names of the groups of an active user; remembered on the object for its request."""
    if not isinstance(user, User) or not user.is_active:
        return frozenset()
    known: frozenset[str] | None = getattr(user, "_group_names", None)
    if known is None:
        known = frozenset(groups_of(user).values_list("name", flat=True))
        user._group_names = known  # type: ignore[attr-defined]  # memo on the instance
    return known


def group_ids(user: Person) -> frozenset[int]:
    """Ids of the groups of an active user."""
    if not isinstance(user, User) or not user.is_active:
        return frozenset()
    return frozenset(groups_of(user).values_list("id", flat=True))


def is_admin(user: Person) -> bool:
    """Administrators may do everything."""
    return ADMINS in group_names(user)


def is_queue_admin(user: Person) -> bool:
    """May create, rename, delete and reorder queues."""
    return bool({ADMINS, QUEUE_ADMINS} & group_names(user))


def may_enter_admin(user: Person) -> bool:
    """The admin site is for administrators and queue administrators."""
    return isinstance(user, User) and not user.is_service and is_queue_admin(user)


def log_in_rules() -> LogInRules:
    """How people may log in; as after installation where nobody changed it."""
    found = LogInRules.objects.select_related("break_glass").filter(pk=1).first()
    return found or LogInRules(pk=1)


def may_use_password(user: User) -> bool:
    """Whether this person's password lets them in; switched off, only that of one administrator."""
    rules = log_in_rules()
    return rules.allows_passwords or rules.break_glass_id == user.pk


def needs_second_factor(user: User) -> bool:
    """Whether somebody who logs in with a password must have a second factor."""
    rules = log_in_rules()
    if rules.requires_second_factor:
        return True
    return rules.second_factor_groups.filter(user=user).exists()


def identity_providers() -> QuerySet[IdentityProvider]:
    """All identity providers, for administrators."""
    return IdentityProvider.objects.order_by("name", "id")


def sign_in_providers() -> QuerySet[IdentityProvider]:
    """Those that the sign-in page offers to everybody."""
    return identity_providers().filter(is_active=True)


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


def service_accounts_visible_to(user: Person) -> QuerySet[User]:
    """Service accounts, with `credentials_used_at` and the number of their live credentials."""
    if not is_admin(user):
        return User.objects.none()
    is_live = Q(credentials__revoked_at__isnull=True) & (
        Q(credentials__expires_at__isnull=True) | Q(credentials__expires_at__gt=timezone.now())
    )
    return (
        User.objects.filter(is_service=True, removed_at__isnull=True)
        .annotate(
            credentials_used_at=Max("credentials__last_used_at"),
            credentials_live=Count("credentials", filter=is_live),
        )
        .prefetch_related("groups")
        .order_by("username")
    )


def service_accounts_listed(user: Person, *, q: str = "", group: str = "") -> QuerySet[User]:
    """Those of them whose name contains `q`, in the group of this name; what is empty does not
    filter.
    """
    accounts = service_accounts_visible_to(user)
    if q:
        accounts = accounts.filter(username__icontains=q)
    if group:
        # Not by a join: it would count credentials once per group.
        accounts = accounts.filter(pk__in=User.objects.filter(groups__name=group).values("pk"))
    return accounts
