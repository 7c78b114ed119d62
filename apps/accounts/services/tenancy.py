"""No user is in groups of two tenants: nothing must pass from one to the other by a person."""

from collections import Counter
from collections.abc import Collection, Iterable

from django.contrib.auth.models import Group
from django.db.models import Count

from apps.accounts.models import ADMINS, QUEUE_ADMINS, USERS, TenantGroup, User
from apps.accounts.selectors import groups_visible_to, is_admin, tenants_administered_by
from apps.core.errors import BadInput, Conflict, NotAllowed

MOST_NAMED = 5
# The most that a tenant's administrators create in it; those of the installation may create more.
MOST_GROUPS = 1_000
MOST_PEOPLE = 20_000
_TAKE_OUT = "take them out of one first"
_OUTSIDE = "in no group of the tenant any more"
_DEACTIVATE = "deactivate the account instead, or ask an administrator of the installation"


def one_tenant_check(user_ids: Iterable[int], *, field: str = "groups") -> None:
    """Refuse memberships in two tenants; call it in the transaction that changed them.

    Administrators may be in any groups. Queue administrators see all queues, so no user of a
    tenant may be one.

    Raises:
        BadInput: a user would be in two tenants, or in one and a queue administrator.
    """
    ids = list(user_ids)
    # Of two changes at once the second waits, and finds what the first one did.
    list(User.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk"))
    people = User.objects.filter(pk__in=ids).exclude(groups__name=ADMINS)
    tenants = Count("groups__belongs__tenant", distinct=True)
    torn = people.annotate(tenants=tenants).filter(tenants__gt=1)
    _refuse(torn.values_list("username", flat=True), "in groups of two tenants", field)
    both = people.filter(groups__name=QUEUE_ADMINS).filter(
        pk__in=User.objects.filter(groups__belongs__isnull=False).values("pk")
    )
    words = f"in {QUEUE_ADMINS}, who see the queues of all, and in a group of a tenant"
    _refuse(both.values_list("username", flat=True), words, field)


def excess_groups_of(user: User, *, wanted: Collection[int]) -> set[int]:
    """Ids of the groups that a user leaves who has just ceased to be an administrator.

    They stay in one tenant, the one with most of the `wanted` groups, and are no queue
    administrator.
    """
    if user.groups.filter(name=ADMINS).exists():
        return set()
    rows = TenantGroup.objects.filter(group__user=user)
    pairs = list(rows.order_by("pk").values_list("group", "tenant"))
    if not pairs:
        return set()
    tenant_counts = Counter(
        TenantGroup.objects.filter(group__in=wanted).values_list("tenant", flat=True)
    )
    kept_tenant = max(
        {tenant for _, tenant in pairs}, key=lambda tenant: (tenant_counts[tenant], -tenant)
    )
    everywhere = user.groups.filter(name=QUEUE_ADMINS).values_list("pk", flat=True)
    return {group for group, tenant in pairs if tenant != kept_tenant} | set(everywhere)


def group_joins_tenant(actor: User | None, group: Group) -> None:
    """Assign a group that an administrator of a tenant created to that tenant.

    Raises:
        Conflict: the tenant has as many groups as its administrators may make.
    """
    if actor is None or not _is_of_tenant(actor):
        return
    for tenant in tenants_administered_by(actor):
        if TenantGroup.objects.filter(tenant=tenant).count() >= MOST_GROUPS:
            problem = f"has {MOST_GROUPS} groups already: remove one first"
            raise Conflict(f"The tenant {problem}.", fields={"name": problem})
        TenantGroup.objects.create(tenant_id=tenant, group=group)


def groups_in_tenant(
    actor: User | None, *, before: set[Group], wanted: Iterable[Group]
) -> set[Group]:
    """The groups that a user will be in: an administrator of a tenant changes its own alone.

    Everybody is in `Users`, so that naming it or leaving it out says nothing.

    Raises:
        BadInput: one is none of the actor's, or none of the actor's would be left.
    """
    after = set(wanted)
    if actor is None or not _is_of_tenant(actor):
        return after
    own = set(groups_visible_to(actor))
    foreign = sorted(group.name for group in after - own - before if group.name != USERS)
    if foreign:
        problem = f"{foreign[0]!r} is not known"
        raise BadInput(f"groups: {problem}.", fields={"groups": problem})
    if not after & own:
        # Without a group, no administrator of a tenant could undo it: they must deactivate instead.
        problem = "choose one of your groups at least"
        raise BadInput(f"groups: {problem}.", fields={"groups": problem})
    return (after & own) | (before - own)


def stays_in_tenant_check(actor: User | None, group: Group, users: Iterable[User]) -> None:
    """Refuse that anybody but the installation removes a user from their last group of a tenant.

    Outside, the account would keep its rules, and no administrator of a tenant could undo them.

    Raises:
        BadInput: a user would be in no group of the tenant.
    """
    tenant = TenantGroup.objects.filter(group=group).values_list("tenant", flat=True).first()
    if actor is None or is_admin(actor) or tenant is None:
        return
    others = Group.objects.filter(belongs__tenant=tenant).exclude(pk=group.pk)
    gone = User.objects.filter(pk__in=[user.pk for user in users]).exclude(groups__in=others)
    _refuse(gone.values_list("username", flat=True), _OUTSIDE, "users", instead=_DEACTIVATE)


def invitation_check(actor: User | None, groups: Iterable[Group]) -> None:
    """Require that a tenant's administrator invites people into a group of that tenant.

    Raises:
        BadInput: no group of it is named.
        Conflict: the tenant has as many people as its administrators may invite.
    """
    groups_in_tenant(actor, before=set(), wanted=groups)
    if actor is None or not _is_of_tenant(actor):
        return
    tenants = tenants_administered_by(actor)
    people = User.objects.filter(groups__belongs__tenant__in=tenants).order_by().distinct()
    if people.count() >= MOST_PEOPLE:
        problem = f"has {MOST_PEOPLE} people already: ask an administrator of the installation"
        raise Conflict(f"The tenant {problem}.", fields={"groups": problem})


def _is_of_tenant(actor: User | None) -> bool:
    """Whether `actor` administers a tenant, and not the installation.

    Raises:
        NotAllowed: they administer nothing, or not while a service account acts for them.
    """
    if actor is None or is_admin(actor):
        return False
    if not tenants_administered_by(actor):
        raise NotAllowed("This is for administrators.")
    return True


def _refuse(names: Iterable[str], words: str, field: str, *, instead: str = _TAKE_OUT) -> None:
    found = sorted(names)
    if not found:
        return
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    who = f"{', '.join(found[:MOST_NAMED])}{more}"
    problem = f"{who} would be {words}: {instead}"
    raise BadInput(f"{problem}.", fields={field: problem})
