"""Who may give what to whom: nobody grants what they do not hold."""

from typing import Any

from django.contrib.auth.models import Group
from django.db.models import QuerySet

from apps.accounts.models import BUILT_IN_GROUPS, User
from apps.accounts.selectors import (
    groups_of,
    groups_visible_to,
    is_admin,
    tenants_administered_by,
    tenants_of,
)
from apps.configuration.rules.levels import RANKS, RESOURCES, Kind, Level
from apps.configuration.rules.rule import Target
from apps.policies.models import Policy, Queue
from apps.policies.rights import held


def levels_grantable_by(user: User, target: Target) -> tuple[Level, ...]:
    """What this person may give on the target, and take away again.

    Administrators everything; who manages a policy or queue, as much as they hold there.
    """
    resource = RESOURCES[target.kind]
    if is_admin(user):
        every = tuple(resource.verbs)
        # Whoever exceeds a limit does so on one policy.
        return every if target.object_id else tuple(one for one in every if one in RANKS)
    models: dict[Kind, type[Policy | Queue]] = {Kind.POLICY: Policy, Kind.QUEUE: Queue}
    model = models.get(target.kind)
    if model is None or not target.object_id:
        return ()
    rows: QuerySet[Any] = model._default_manager.filter(pk=target.object_id, removed_at=None)
    own = {
        verb
        for verb in ("view", "enqueue", "manage")
        if rows.filter(held(model, user, verb)).exists()
    }
    if "manage" not in own:
        return ()
    return tuple(level for level in RANKS if own.issuperset(resource.verbs[level]))


def people_nameable_by(user: User) -> QuerySet[User]:
    """People and service accounts whom this person may name in a rule, or ask about.

    Those of one's teams; administrators of a tenant, and whoever belongs to one, name nobody else
    than the tenant's.
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
    """Groups whom this person may name in a rule: all, or one's own teams."""
    if is_admin(user):
        return Group.objects.all()
    return Group.objects.filter(pk__in=_teams_of(user).values("pk"))


def _teams_of(user: User) -> QuerySet[Group]:
    """Everybody is in `Users`, and who administers is nobody's team.

    In a tenant its administrators name all its groups, and nobody any that is not the tenant's.
    """
    if tenants_administered_by(user):
        return groups_visible_to(user)
    teams = groups_of(user).exclude(name__in=BUILT_IN_GROUPS)
    return teams.filter(belongs__tenant__in=tenants_of(user)) if tenants_of(user) else teams
