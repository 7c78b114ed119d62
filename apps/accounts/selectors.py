"""What a user is, in terms of groups; and the people and groups that a user may see."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from allauth.socialaccount.models import SocialAccount
from django.contrib.auth import HASH_SESSION_KEY
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group
from django.contrib.sessions.models import Session
from django.db.models import Count, Exists, Max, OuterRef, Prefetch, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Greatest
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from apps.accounts.memberships import ADMINISTERING, memberships
from apps.accounts.models import (
    ADMINS,
    QUEUE_ADMINS,
    USERS,
    Credential,
    IdentityProvider,
    LogInRules,
    PersonSession,
    PersonStatus,
    Tenant,
    User,
)
from apps.accounts.session_store import stored_key
from apps.accounts.user_agents import browser_name

# Before all others: lists sort by it, so people who never signed in need a value, too.
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
STATUSES = {
    PersonStatus.ACTIVE: Q(is_active=True, is_pending=False),
    PersonStatus.PENDING: Q(is_active=True, is_pending=True),
    PersonStatus.DEACTIVATED: Q(is_active=False),
}

Person = User | AbstractBaseUser | AnonymousUser
MOST_SESSIONS = 50
# Rows of the apps above this one by which a rule names a person: the name of the relation to them,
# and from there the path to the tenant of the rule's target. A personal vault that a rule shares,
# a pool and a volume are of no tenant.
RULES_ON_PEOPLE: Mapping[str, str] = {
    "policyuserpermission": "content_object__tenant",
    "queueuserpermission": "content_object__policy__tenant",
    "vaultuserpermission": "content_object__group__belongs__tenant",
    "pooluserpermission": "",
    "volumeuserpermission": "",
    "taskuserpermission": "content_object__queue__policy__tenant",
}


def former_names(users: QuerySet[User]) -> Iterator[str]:
    """User names that these accounts had before, and that nobody else may choose."""
    renamed = users.exclude(former_names=[]).values_list("former_names", flat=True)
    return chain.from_iterable(renamed)


def groups_of(user: User) -> QuerySet[Group]:
    """The groups whose permissions the user has now; where an account acts, none administers."""
    groups = Group.objects.filter(user=user)
    if user.acted_by_id is None:
        return groups
    return groups.exclude(name__in=ADMINISTERING).exclude(administers__isnull=False)


def group_names(user: Person) -> frozenset[str]:
    """Names of the groups whose permissions an active user has now."""
    acted = isinstance(user, User) and user.acted_by_id is not None
    return frozenset(
        one.group for one in memberships(user) if not (acted and one.is_dropped_when_acting)
    )


def tenants_of(user: Person) -> frozenset[int]:
    """Ids of the tenants whose groups the user is in: one at most, except for administrators."""
    return frozenset(one.tenant for one in memberships(user) if one.tenant is not None)


def tenants_administered_by(user: Person) -> frozenset[int]:
    """Ids of the tenants that the user administers: none while a service account acts."""
    if not isinstance(user, User) or user.acted_by_id is not None:
        return frozenset()
    return frozenset(one.administers for one in memberships(user) if one.administers is not None)


def manages_people(user: Person) -> bool:
    """Whether the user manages people and groups: all, or those of a tenant."""
    return is_admin(user) or bool(tenants_administered_by(user))


def group_ids(user: Person) -> frozenset[int]:
    """Ids of the groups of an active user."""
    if not isinstance(user, User) or not user.is_active:
        return frozenset()
    return frozenset(groups_by_id(user))


def groups_by_id(user: User) -> Mapping[int, str]:
    """Names by id of the groups whose permissions the user has now (`groups_of`)."""
    known: Mapping[int, str] | None = getattr(user, "_groups", None)
    return dict(groups_of(user).values_list("pk", "name")) if known is None else known


def is_admin(user: Person) -> bool:
    """Administrators may do everything."""
    return ADMINS in group_names(user)


def is_queue_admin(user: Person) -> bool:
    """May create, rename, delete and reorder queues."""
    return bool({ADMINS, QUEUE_ADMINS} & group_names(user))


def may_enter_admin(user: Person) -> bool:
    """The admin site is for administrators and queue administrators."""
    return isinstance(user, User) and not user.is_service and is_queue_admin(user)


def provider_giving(user: User, group: Group) -> IdentityProvider | None:
    """The identity provider that puts this user into the group at each log-in."""
    linked = SocialAccount.objects.filter(user=user).values("provider")
    providers = IdentityProvider.objects.filter(is_active=True, syncs_groups=True)
    return providers.filter(mapping__group=group, slug__in=linked).first()


def log_in_rules() -> LogInRules:
    """How people may log in; the defaults if nobody has changed it."""
    found = LogInRules.objects.select_related("break_glass").filter(pk=1).first()
    return found or LogInRules(pk=1)


def may_use_password(user: User) -> bool:
    """Whether this person may log in with a password; with passwords off, only one may."""
    rules = log_in_rules()
    return rules.allows_passwords or rules.break_glass_id == user.pk


def is_break_glass(user: User) -> bool:
    """Whether this person's password is the only one that works."""
    rules = log_in_rules()
    return not rules.allows_passwords and rules.break_glass_id == user.pk


def needs_second_factor(user: User) -> bool:
    """Whether the user, when logging in with a password, must have a second factor."""
    rules = log_in_rules()
    if rules.requires_second_factor:
        return True
    return rules.second_factor_groups.filter(user=user).exists()


@dataclass(frozen=True, slots=True)
class LogInUse:
    """How log-ins use a group: whether its members need a second factor, and which providers
    add people to it.
    """

    asks_second_factor: bool
    providers: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.asks_second_factor or bool(self.providers)


def log_in_use(group: Group) -> LogInUse:
    """The uses by log-ins that end if the group is deleted."""
    providers = IdentityProvider.objects.filter(mapping__group=group).order_by("name")
    return LogInUse(
        LogInRules.objects.filter(second_factor_groups=group).exists(),
        tuple(providers.values_list("name", flat=True).distinct()),
    )


def identity_providers() -> QuerySet[IdentityProvider]:
    """All identity providers, for administrators."""
    return IdentityProvider.objects.order_by("name", "id")


def sign_in_providers() -> QuerySet[IdentityProvider]:
    """The providers on the sign-in page."""
    return identity_providers().filter(is_active=True)


def links_of(provider: IdentityProvider) -> QuerySet[Any]:
    """The people whom this provider has identified: rows of django-allauth, with their ids."""
    rows: QuerySet[Any] = SocialAccount.objects.filter(provider=provider.slug)
    return rows


def credentials_of(user: Person) -> QuerySet[Credential]:
    """The user's own credentials; revoked ones stay in the list."""
    if not isinstance(user, User):
        return Credential.objects.none()
    return Credential.objects.filter(user=user)


def people_visible_to(user: Person) -> QuerySet[User]:
    """People, not service accounts, with `last_active` (or `NEVER`).

    Everybody, for administrators; for those of a tenant, the people in its groups.
    """
    people = User.objects.filter(is_service=False)
    return with_last_active(people.filter(_managed_by(user, people)))


def people_managed_by(user: Person) -> QuerySet[User]:
    """Those of them whose account the user may change, deactivate and make links for.

    For administrators of a tenant only people with no permissions or tasks outside of it, by groups
    or rules: else a link that sets a password would give access to what is not the tenant's.
    """
    people = people_visible_to(user)
    if is_admin(user):
        return people
    tenants = tenants_administered_by(user)
    own = Q(name=USERS) | Q(belongs__tenant__in=tenants)
    foreign = Group.objects.exclude(pk__in=Group.objects.filter(own).values("pk"))
    people = people.exclude(groups__in=foreign).exclude(_has_outside_rules(tenants))
    return people.exclude(_has_outside_tasks(tenants))


def _has_outside_rules(tenants: frozenset[int]) -> Q:
    """People whom a rule names directly on an object of none of these tenants."""
    found = Q(pk__in=User.objects.filter(user_permissions__isnull=False).values("pk"))
    for name, path in RULES_ON_PEOPLE.items():
        relation: Any = User._meta.get_field(name)
        rows: QuerySet[Any] = relation.related_model._default_manager.all()
        inside = rows.filter(**{f"{path}__in": tenants}) if path else rows.none()
        found |= Q(pk__in=rows.exclude(pk__in=inside.values("pk")).values("user"))
    return found


def _has_outside_tasks(tenants: frozenset[int]) -> Exists:
    """Owners of tasks in queues of none of these tenants."""
    relation: Any = User._meta.get_field("tasks")
    tasks: QuerySet[Any] = relation.related_model._default_manager.filter(
        owner=OuterRef("pk"), queue__isnull=False
    )
    inside = Q(queue__policy__tenant__in=tenants)
    return Exists(tasks.exclude(inside))


def accounts_visible_to(user: Person) -> QuerySet[User]:
    """Accounts that the user may add to groups: people and service accounts, not removed ones."""
    accounts = User.objects.filter(removed_at__isnull=True)
    return accounts.filter(_managed_by(user, accounts))


def _managed_by(user: Person, rows: QuerySet[User]) -> Q:
    if is_admin(user):
        return Q()
    own = rows.filter(groups__belongs__tenant__in=tenants_administered_by(user))
    return Q(pk__in=own.values("pk"))


def with_last_active(users: QuerySet[User]) -> QuerySet[User]:
    """Annotates `last_active`: by a session or a credential, whichever was later."""
    used = Credential.objects.filter(user=OuterRef("pk")).order_by().values("user")
    last = Subquery(used.annotate(last=Max("last_used_at")).values("last"))
    return users.annotate(
        last_active=Greatest(Coalesce("last_active_at", NEVER), Coalesce(last, NEVER))
    )


def people_named(rows: QuerySet[User], word: str) -> QuerySet[User]:
    """People whose names or e-mail address contain every part of `word`."""
    for part in word.split():
        rows = rows.filter(
            Q(username__icontains=part)
            | Q(first_name__icontains=part)
            | Q(last_name__icontains=part)
            | Q(email__icontains=part)
        )
    return rows


def groups_visible_to(user: Person) -> QuerySet[Group]:
    """All groups, for administrators; for those of a tenant, its own."""
    if is_admin(user):
        return Group.objects.all()
    return Group.objects.filter(belongs__tenant__in=tenants_administered_by(user))


def tenants_visible_to(user: Person) -> QuerySet[Tenant]:
    """All tenants, for administrators of the installation."""
    rows = Tenant.objects.select_related("admin_group")
    return rows if is_admin(user) else rows.none()


def administrators_left(*, without: User | None = None) -> bool:
    """Whether an administrator is left who can sign in."""
    rows = User.objects.filter(
        groups__name=ADMINS, is_active=True, is_pending=False, is_service=False
    )
    return (rows.exclude(pk=without.pk) if without is not None else rows).exists()


@dataclass(frozen=True, slots=True)
class OwnSession:
    """A browser in which the user is signed in; `id` reveals nothing of its key."""

    id: str
    browser: str
    address: str
    began_at: datetime
    seen_at: datetime
    is_this: bool


def sessions_of(user: User, *, this: str | None) -> list[OwnSession]:
    """The browsers in which the user is signed in, the current one first.

    Args:
        this: the key of the current session.
    """
    rows = {row.session_key: row for row in PersonSession.objects.filter(user=user)[:MOST_SESSIONS]}
    live = Session.objects.filter(session_key__in=rows, expire_date__gt=timezone.now())
    expected = user.get_session_auth_hash()
    keys = {
        one.session_key
        for one in live
        # After another password, or a deactivation, Django's row is there but no longer valid.
        if constant_time_compare(str(one.get_decoded().get(HASH_SESSION_KEY, "")), expected)
    }
    found = [
        OwnSession(
            id=session_digest(key),
            browser=browser_name(row.agent),
            address=row.address,
            began_at=row.began_at,
            seen_at=row.seen_at,
            is_this=this is not None and key == stored_key(this),
        )
        for key, row in rows.items()
        if key in keys
    ]
    return sorted(found, key=lambda one: not one.is_this)


def session_digest(key: str) -> str:
    """The id of a session on pages; its readers cannot sign in with it."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


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
        .prefetch_related(groups_by_name())
        .order_by("username")
    )


def groups_by_name() -> "Prefetch[str, Any, str]":
    """Prefetches the groups of the people that a response shows, in one order."""
    return Prefetch("groups", queryset=Group.objects.order_by("name", "pk"))


def service_accounts_listed(user: Person, *, q: str = "", group: str = "") -> QuerySet[User]:
    """Service accounts whose name contains `q`, in the group of this name; empty values do not
    filter.
    """
    accounts = service_accounts_visible_to(user)
    if q:
        accounts = accounts.filter(username__icontains=q)
    if group:
        # Not by a join: it would count credentials once per group.
        accounts = accounts.filter(pk__in=User.objects.filter(groups__name=group).values("pk"))
    return accounts


def time_zone_of(user: User) -> ZoneInfo:
    """The time zone of the account; UTC without one."""
    try:
        return ZoneInfo(user.time_zone or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")
