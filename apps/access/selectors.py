"""What a user may see and change of pools, profiles, policies and queues.

A permission on a pool, policy or queue comes from the sources of `apps.access.sources`. Profiles
have no permissions of their own: they are seen with their queues.
"""

from django.db.models import Q, QuerySet

from apps.access.permissions import rows_with_permission
from apps.accounts.selectors import (
    Person,
    is_admin,
    is_queue_admin,
    tenants_administered_by,
)
from apps.policies.models import Policy, Pool, Profile, Queue


def policies_visible_to(user: Person) -> QuerySet[Policy]:
    """Policies on which the user holds `view`, as their group does; never removed ones."""
    return rows_with_permission(Policy, user, "view")


def queues_visible_to(user: Person) -> QuerySet[Queue]:
    """Queues on which the user holds `view`."""
    return rows_with_permission(Queue, user, "view")


def queues_open_to(user: Person) -> QuerySet[Queue]:
    """Queues in which the user may enqueue."""
    return rows_with_permission(Queue, user, "enqueue")


def queues_managed_by(user: Person) -> QuerySet[Queue]:
    """Queues in which the user may reorder, abort others' tasks and pause."""
    return rows_with_permission(Queue, user, "manage")


def policies_managed_by(user: Person) -> QuerySet[Policy]:
    """Policies of which the user manages all queues and sees the rules."""
    return rows_with_permission(Policy, user, "manage")


def policies_restrictable_by(user: Person) -> QuerySet[Policy]:
    """Those that the user may restrict: a tenant's top is for the installation's administrators."""
    managed = policies_managed_by(user)
    if is_admin(user):
        return managed
    return managed.exclude(tenant__isnull=False, parent__isnull=True)


def pools_visible_to(user: Person) -> QuerySet[Pool]:
    return rows_with_permission(Pool, user, "view")


def profiles_visible_to(user: Person) -> QuerySet[Profile]:
    """Profiles of visible queues; administrators of tenants also see those they may connect."""
    used = profiles_used_by(user)
    if is_admin(user) or not tenants_administered_by(user):
        return used
    more = profiles_connectable_by(user)
    live = Profile.objects.filter(removed_at__isnull=True)
    return live.filter(Q(pk__in=used.values("pk")) | Q(pk__in=more.values("pk")))


def profiles_used_by(user: Person) -> QuerySet[Profile]:
    """Profiles of visible queues, which the user sees with all their fields."""
    live = Profile.objects.filter(removed_at__isnull=True)
    if is_admin(user):
        return live
    return live.filter(pk__in=queues_visible_to(user).values("profile_id"))


def policies_changeable_by(user: Person) -> QuerySet[Policy]:
    """Policies that the user changes, pauses and removes: in a tenant those below its top."""
    live = Policy.objects.filter(removed_at__isnull=True)
    if is_admin(user):
        return live
    return live.filter(tenant__in=tenants_administered_by(user), parent__isnull=False)


def policies_administered_by(user: Person) -> QuerySet[Policy]:
    """Those, and the top, below which the user creates policies."""
    live = Policy.objects.filter(removed_at__isnull=True)
    if is_admin(user):
        return live
    return live.filter(tenant__in=tenants_administered_by(user))


def policies_connectable_by(user: Person) -> QuerySet[Policy]:
    """Policies to which the user may connect profiles: all for queue administrators."""
    live = Policy.objects.filter(removed_at__isnull=True)
    return live if is_queue_admin(user) else policies_changeable_by(user)


def queues_settable_by(user: Person) -> QuerySet[Queue]:
    """Queues that the user may change and close."""
    live = Queue.objects.filter(removed_at__isnull=True)
    if is_queue_admin(user):
        return live
    return live.filter(policy__in=policies_changeable_by(user).values("pk"))


def profiles_connectable_by(user: Person) -> QuerySet[Profile]:
    """Profiles that the user may connect to a policy.

    For administrators of a tenant those that give nothing but resources, and those that the tenant
    has by a queue: volumes, the node's network and permissions are the installation's to give.
    """
    live = Profile.objects.filter(removed_at__isnull=True)
    if is_queue_admin(user):
        return live
    tenants = tenants_administered_by(user)
    if not tenants:
        return live.none()
    own = Queue.objects.filter(removed_at__isnull=True, policy__tenant__in=tenants)
    plain = Q(volumes=[], host_network=False, extra_permissions=[])
    return live.filter(plain | Q(pk__in=own.values("profile")))
