"""What a user may grant, and to whom: nobody grants what they do not hold."""

from collections import defaultdict
from collections.abc import Iterable

from django.contrib.auth.models import Group
from django.db.models import QuerySet

from apps.access.levels import LEVEL_ORDER, RESOURCES, Level, Resource
from apps.access.permissions import rows_with_permission
from apps.access.rules.rule import Target
from apps.accounts.models import BUILT_IN_GROUPS, User
from apps.accounts.selectors import (
    groups_of,
    groups_visible_to,
    is_admin,
    tenants_administered_by,
    tenants_of,
)


def levels_grantable_by(user: User, target: Target) -> tuple[Level, ...]:
    """The levels that this person may grant on the target, and revoke."""
    return levels_grantable_on(user, [target])[target]


def levels_grantable_on(user: User, targets: Iterable[Target]) -> dict[Target, tuple[Level, ...]]:
    """The same for many at once, in a fixed number of queries.

    Administrators grant everything; managers of a policy or queue and owners of tasks, as much as
    they hold there.
    """
    every = list(targets)
    if is_admin(user):
        return {target: _levels_of(target) for target in every}
    held_on = {
        resource.kind: _held_on(
            user, resource, [one.object_id for one in every if one.kind is resource.kind]
        )
        for resource in RESOURCES.values()
        if resource.is_managed
    }
    return {
        target: _up_to(
            RESOURCES[target.kind], held_on.get(target.kind, {}).get(target.object_id, set())
        )
        for target in every
    }


def _levels_of(target: Target) -> tuple[Level, ...]:
    """The levels of a target. Exceeding a limit is granted on one policy only."""
    known = RESOURCES[target.kind].verbs
    return tuple(one for one in known if target.object_id or one in LEVEL_ORDER)


def _held_on(user: User, resource: Resource, ids: list[str]) -> dict[str, set[str]]:
    """What the user holds on each of these objects."""
    found: dict[str, set[str]] = defaultdict(set)
    wanted = [pk for pk in ids if pk]
    given = {verb for level in LEVEL_ORDER for verb in resource.verbs.get(level, ())}
    for verb in sorted(given | {"manage"}) if wanted else ():
        rows = rows_with_permission(resource.model, user, verb).filter(pk__in=wanted)
        for pk in rows.values_list("pk", flat=True):
            found[str(pk)].add(verb)
    return found


def _up_to(resource: Resource, verbs: set[str]) -> tuple[Level, ...]:
    if "manage" not in verbs:
        return ()
    levels = resource.verbs
    return tuple(one for one in LEVEL_ORDER if one in levels and verbs.issuperset(levels[one]))


def people_nameable_by(user: User) -> QuerySet[User]:
    """People and service accounts whom this person may name in a rule, or ask about.

    Those of the user's teams; administrators and users of a tenant name only the tenant's.
    """
    live = User.objects.filter(is_active=True)
    if is_admin(user):
        return live
    members = User.groups.through._default_manager.filter(group__in=_teams_of(user))
    found = live.filter(pk__in=members.values("user"))
    if not tenants_of(user):
        return found
    return found.filter(pk__in=User.objects.filter(groups__belongs__tenant__in=tenants_of(user)))


def groups_nameable_by(user: User) -> QuerySet[Group]:
    """Groups that this person may name in a rule: all, or those of their teams."""
    if is_admin(user):
        return Group.objects.all()
    return Group.objects.filter(pk__in=_teams_of(user).values("pk"))


def _teams_of(user: User) -> QuerySet[Group]:
    """The groups that count as teams: not `Users`, and not those of administrators.

    Administrators of a tenant name all its groups; nobody in it names another tenant's.
    """
    if tenants_administered_by(user):
        return groups_visible_to(user)
    teams = groups_of(user).exclude(name__in=BUILT_IN_GROUPS)
    return teams.filter(belongs__tenant__in=tenants_of(user)) if tenants_of(user) else teams
