"""Every kind of permission source once: which objects it opens, to whom, and why.

`apps.access.permissions` puts them together. Only these classes read the rows of rules to decide; a
new kind is a class and an entry of `SOURCES`, which apps above add when Django starts.
"""

from dataclasses import dataclass
from typing import Any, Final

from django.contrib.auth.models import Group, Permission
from django.db.models import Exists, Model, Q, QuerySet

from apps.access.filters import ALL_ROWS, NO_ROWS, all_of
from apps.access.isolation import tenant_of
from apps.access.levels import EXCEED, RuleKind
from apps.access.source_kind import (
    ObjectPermission,
    PermissionHolder,
    PermissionSource,
    PermissionSources,
    SourceKind,
)
from apps.accounts.models import ADMINS, QUEUE_ADMINS, User
from apps.accounts.models.grants import GrantSource
from apps.accounts.selectors import group_names, tenants_administered_by


class BuiltInGroup(SourceKind):
    """Membership in a built-in group, which reaches all objects."""

    group: str
    code: str

    def rows(self, permission: ObjectPermission, holder: PermissionHolder) -> Q:
        return ALL_ROWS if self.group in group_names(holder.user) else NO_ROWS

    def people(self, permission: ObjectPermission, row: Any) -> Q:
        return _members_of(Group.objects.filter(name=self.group).values("pk"))

    def reasons(
        self, permission: ObjectPermission, row: Any, holder: PermissionHolder
    ) -> PermissionSources:
        if self.group in group_names(holder.user):
            yield PermissionSource(self.code)


class Administrator(BuiltInGroup):
    """Administrators of the installation may do everything but exceed limits."""

    group, code = ADMINS, "administrator"

    def gives(self, permission: ObjectPermission) -> bool:
        if permission.resource.kind is RuleKind.VAULT:
            return permission.verb == "view"
        return permission.verb != EXCEED

    def crosses_tenants(self, permission: ObjectPermission) -> bool:
        return True


class VaultAdministrator(Administrator):
    """They hold every permission on vaults of groups, and of personal ones only see them."""

    def gives(self, permission: ObjectPermission) -> bool:
        return permission.resource.kind is RuleKind.VAULT and permission.verb != "view"

    def rows(self, permission: ObjectPermission, holder: PermissionHolder) -> Q:
        return all_of(super().rows(permission, holder), Q(group__isnull=False))

    def people(self, permission: ObjectPermission, row: Any) -> Q:
        return NO_ROWS if row.is_personal else super().people(permission, row)

    def reasons(
        self, permission: ObjectPermission, row: Any, holder: PermissionHolder
    ) -> PermissionSources:
        if not row.is_personal:
            yield from super().reasons(permission, row, holder)


class Owner(SourceKind):
    """Owners hold every permission on their tasks and vaults, wherever those are."""

    def gives(self, permission: ObjectPermission) -> bool:
        return permission.resource.kind in {RuleKind.TASK, RuleKind.VAULT}

    def rows(self, permission: ObjectPermission, holder: PermissionHolder) -> Q:
        return Q(owner=holder.user)

    def people(self, permission: ObjectPermission, row: Any) -> Q:
        return Q(pk=row.owner_id)

    def reasons(
        self, permission: ObjectPermission, row: Any, holder: PermissionHolder
    ) -> PermissionSources:
        if self.is_evident(permission, row, holder):
            yield PermissionSource("owner")

    def is_evident(self, permission: ObjectPermission, row: Any, holder: PermissionHolder) -> bool:
        return bool(row.owner_id == holder.user.pk)

    def crosses_tenants(self, permission: ObjectPermission) -> bool:
        return True


class QueueAdministrator(BuiltInGroup):
    """Queue administrators see every queue."""

    group, code = QUEUE_ADMINS, "queue_administrator"

    def gives(self, permission: ObjectPermission) -> bool:
        return permission.verb == "view" and permission.resource.kind is RuleKind.QUEUE


class TenantAdministrator(SourceKind):
    """Administrators of a tenant hold every permission in its tree and on vaults of its groups."""

    def gives(self, permission: ObjectPermission) -> bool:
        return permission.verb != EXCEED and permission.resource.kind in {
            RuleKind.POLICY,
            RuleKind.QUEUE,
            RuleKind.VAULT,
        }

    def rows(self, permission: ObjectPermission, holder: PermissionHolder) -> Q:
        tenants = tenants_administered_by(holder.user)
        return Q(**{f"{permission.resource.tenant_path}__in": tenants}) if tenants else NO_ROWS

    def people(self, permission: ObjectPermission, row: Any) -> Q:
        tenant = tenant_of(row)
        groups = Group.objects.filter(administers=tenant).values("pk")
        return _members_of(groups) if tenant is not None else NO_ROWS

    def reasons(
        self, permission: ObjectPermission, row: Any, holder: PermissionHolder
    ) -> PermissionSources:
        if tenant_of(row) in tenants_administered_by(holder.user):
            policy = permission.resource.policy_of(row)
            on = ("", "") if policy is None else (RuleKind.POLICY.value, policy.name)
            yield PermissionSource("tenant_administrator", on)


class VaultGroup(SourceKind):
    """Members of a vault's group see it, but not its text."""

    def gives(self, permission: ObjectPermission) -> bool:
        return permission.resource.kind is RuleKind.VAULT and permission.verb == "view"

    def rows(self, permission: ObjectPermission, holder: PermissionHolder) -> Q:
        return Q(group__in=list(holder.groups))

    def people(self, permission: ObjectPermission, row: Any) -> Q:
        return _members_of(Group.objects.filter(vaults=row).values("pk"))

    def reasons(
        self, permission: ObjectPermission, row: Any, holder: PermissionHolder
    ) -> PermissionSources:
        if row.group_id in holder.groups:
            on, group = (RuleKind.VAULT.value, row.name), holder.groups[row.group_id]
            yield PermissionSource("vault_group", on, group=group)


class ModelWideRule(SourceKind):
    """A rule on all objects of a kind, which is Django's own permission of the model.

    One on all policies reaches all queues.
    """

    def gives(self, permission: ObjectPermission) -> bool:
        return permission.verb != EXCEED and permission.resource.has_kind_rules

    def rows(self, permission: ObjectPermission, holder: PermissionHolder) -> Q:
        given = _permissions(permission)
        return Q(Exists(given.filter(user=holder.user))) | Q(
            Exists(given.filter(group__in=list(holder.groups)))
        )

    def people(self, permission: ObjectPermission, row: Any) -> Q:
        given = _permissions(permission)
        users = User.objects.filter(user_permissions__in=given).values("pk")
        groups = Group.objects.filter(permissions__in=given).values("pk")
        return Q(pk__in=users) | _members_of(groups)

    def reasons(
        self, permission: ObjectPermission, row: Any, holder: PermissionHolder
    ) -> PermissionSources:
        for one in _with_policy(permission):
            given, on = (
                _permissions(permission).filter(codename=one.codename),
                (one.resource.kind.value, ""),
            )
            if given.filter(user=holder.user).exists():
                yield PermissionSource("rule", on)
            for pk in given.filter(group__in=list(holder.groups)).values_list("group", flat=True):
                yield PermissionSource("rule", on, group=holder.groups[pk])


class RuleForUser(SourceKind):
    """A rule on the object that names the user, or a policy that is restricted to them."""

    def gives(self, permission: ObjectPermission) -> bool:
        return bool(permission.codenames)

    def rows(self, permission: ObjectPermission, holder: PermissionHolder) -> Q:
        given = _rule_rows(permission.resource.by_user, permission).filter(user=holder.user)
        return Q(**{f"{permission.path}__in": given.values("content_object_id")})

    def people(self, permission: ObjectPermission, row: Any) -> Q:
        given = _rule_rows(permission.resource.by_user, permission).filter(content_object=row)
        return Q(pk__in=given.values("user"))

    def reasons(
        self, permission: ObjectPermission, row: Any, holder: PermissionHolder
    ) -> PermissionSources:
        given = _rule_rows(permission.resource.by_user, permission)
        for one in _oldest_first(given.filter(user=holder.user, content_object=row)):
            yield _rule_source(one, (permission.resource.kind.value, row.name))


class RuleForGroup(SourceKind):
    """A rule on the object that names a group of the user, or a policy of the group."""

    def gives(self, permission: ObjectPermission) -> bool:
        return bool(permission.codenames)

    def rows(self, permission: ObjectPermission, holder: PermissionHolder) -> Q:
        given = _rule_rows(permission.resource.by_group, permission).filter(
            group__in=list(holder.groups)
        )
        return Q(**{f"{permission.path}__in": given.values("content_object_id")})

    def people(self, permission: ObjectPermission, row: Any) -> Q:
        given = _rule_rows(permission.resource.by_group, permission).filter(content_object=row)
        return _members_of(given.values("group"))

    def reasons(
        self, permission: ObjectPermission, row: Any, holder: PermissionHolder
    ) -> PermissionSources:
        given = _rule_rows(permission.resource.by_group, permission)
        for one in _oldest_first(given.filter(group__in=list(holder.groups), content_object=row)):
            on = (permission.resource.kind.value, row.name)
            yield _rule_source(one, on, holder.groups[one.group_id])


@dataclass(frozen=True, slots=True)
class RuleOnPolicy(SourceKind):
    """A rule on the queue's policy. Children of a policy inherit nothing."""

    rule: SourceKind

    def gives(self, permission: ObjectPermission) -> bool:
        return permission.resource.kind is RuleKind.QUEUE

    def rows(self, permission: ObjectPermission, holder: PermissionHolder) -> Q:
        return self.rule.rows(permission.on_policy, holder)

    def people(self, permission: ObjectPermission, row: Any) -> Q:
        return self.rule.people(permission.on_policy, row.policy)

    def reasons(
        self, permission: ObjectPermission, row: Any, holder: PermissionHolder
    ) -> PermissionSources:
        return self.rule.reasons(permission.on_policy, row.policy, holder)


SOURCES: Final[list[SourceKind]] = [
    Administrator(),
    VaultAdministrator(),
    Owner(),
    QueueAdministrator(),
    TenantAdministrator(),
    VaultGroup(),
    ModelWideRule(),
    RuleForUser(),
    RuleForGroup(),
    RuleOnPolicy(RuleForUser()),
    RuleOnPolicy(RuleForGroup()),
]


def source_register(*kinds: SourceKind) -> None:
    """Add kinds of sources of an app above this one, each once."""
    SOURCES.extend(one for one in kinds if one not in SOURCES)


def _members_of(group_ids: QuerySet[Any, Any]) -> Q:
    members = User.groups.through._default_manager.filter(group__in=group_ids)
    return Q(pk__in=members.values("user"))


def _with_policy(permission: ObjectPermission) -> tuple[ObjectPermission, ...]:
    """The permission, and the one on policies that gives it on queues."""
    return (
        (permission, permission.on_policy)
        if permission.resource.kind is RuleKind.QUEUE
        else (permission,)
    )


def _permissions(permission: ObjectPermission) -> QuerySet[Permission]:
    names = [one.codename for one in _with_policy(permission)]
    return Permission.objects.order_by().filter(
        content_type__app_label=permission.resource.app, codename__in=names
    )


def _rule_rows(model: type[Model], permission: ObjectPermission) -> QuerySet[Any]:
    names = permission.codenames
    rows: QuerySet[Any] = model._default_manager.filter(permission__codename__in=names)
    return rows


def _oldest_first(rows: QuerySet[Any]) -> QuerySet[Any]:
    return rows.select_related("created_by").order_by("pk")


def _rule_source(row: Any, on: tuple[str, str], group: str = "") -> PermissionSource:
    if row.source == GrantSource.POLICY:
        return PermissionSource("policy_group" if group else "policy_member", on, group=group)
    by = row.created_by.username if row.created_by else ""
    return PermissionSource("rule", on, group=group, by=by)
