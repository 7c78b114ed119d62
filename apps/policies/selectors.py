"""What a person may see of pools, profiles, policies and queues.

Administrators see everything. Others see the policies and queues on which they hold `view` (see
`apps.policies.rights`), and the profiles of those queues. Pools are seen through their links by
administrators, and by those who were given `view_pool`.
"""

from dataclasses import dataclass
from typing import TypeVar

from django.contrib.auth.models import Group
from django.db.models import Model, Q, QuerySet

from apps.accounts.models import User
from apps.accounts.selectors import (
    Person,
    is_admin,
    is_queue_admin,
    tenants_administered_by,
)
from apps.core.images import REGISTRY_ALIASES, ImageName
from apps.core.keyring import unseal
from apps.policies.models import (
    Policy,
    PolicyGroupPermission,
    PolicyUserPermission,
    Pool,
    Profile,
    Queue,
    RegistryCredential,
)
from apps.policies.rights import right_filter
from apps.policies.tenancy import policies_changeable_by

EXCEED_LIMIT = "exceed_limit_policy"


def policies_visible_to(user: Person) -> QuerySet[Policy]:
    """Policies on which the user holds `view`, as their group does; never removed ones."""
    live = Policy.objects.filter(removed_at__isnull=True)
    if is_admin(user):
        return live
    return live.filter(right_filter(Policy, user, "view"))


def queues_visible_to(user: Person) -> QuerySet[Queue]:
    """Queues on which the user holds `view`; queue administrators see all."""
    live = Queue.objects.filter(removed_at__isnull=True)
    if is_queue_admin(user):
        return live
    return live.filter(right_filter(Queue, user, "view"))


def queues_open_to(user: Person) -> QuerySet[Queue]:
    """Queues in which the user may enqueue."""
    live = Queue.objects.filter(removed_at__isnull=True)
    return live if is_admin(user) else live.filter(right_filter(Queue, user, "enqueue"))


def queues_managed_by(user: Person) -> QuerySet[Queue]:
    """Queues in which the user may reorder, abort others' tasks and pause."""
    live = Queue.objects.filter(removed_at__isnull=True)
    return live if is_admin(user) else live.filter(right_filter(Queue, user, "manage"))


def policies_managed_by(user: Person) -> QuerySet[Policy]:
    """Policies of which the user manages all queues and sees the rules."""
    live = Policy.objects.filter(removed_at__isnull=True)
    return live if is_admin(user) else live.filter(right_filter(Policy, user, "manage"))


def policies_restrictable_by(user: Person) -> QuerySet[Policy]:
    """Those that the user may restrict: a tenant's top is for the installation's administrators."""
    managed = policies_managed_by(user)
    if is_admin(user):
        return managed
    return managed.exclude(tenant__isnull=False, parent__isnull=True)


def pools_visible_to(user: Person) -> QuerySet[Pool]:
    live = Pool.objects.filter(removed_at__isnull=True)
    return live if is_admin(user) else live.filter(right_filter(Pool, user, "view"))


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


def may_exceed_limit(policy_id: int) -> set[int]:
    """Ids of the people whose preemptible tasks skip the limit of this policy.

    Only those to whom a rule gives the right, by name or by a group. Administrators do not have it
    by themselves, since such tasks always count as over quota.
    """
    users, groups = limit_exceeders(policy_id)
    members = User.objects.filter(groups__in=groups)
    return set((users | members).values_list("pk", flat=True))


def limit_exceeders(policy: Policy | int) -> tuple[QuerySet[User], QuerySet[Group]]:
    """To whom the right to exceed the limit of a policy was given."""
    users = PolicyUserPermission.objects.filter(
        content_object=policy, permission__codename=EXCEED_LIMIT
    )
    groups = PolicyGroupPermission.objects.filter(
        content_object=policy, permission__codename=EXCEED_LIMIT
    )
    return (
        User.objects.filter(pk__in=users.values("user")),
        Group.objects.filter(pk__in=groups.values("group")),
    )


def known_keys() -> set[str]:
    """Resource keys that some live pool lists; the built-in ones are known anyway."""
    capacities = Pool.objects.filter(removed_at__isnull=True).values_list("capacity", flat=True)
    return {key for capacity in capacities for key in capacity}


Row = TypeVar("Row", bound=Model)


def by_name_or_id(rows: QuerySet[Row], given: str | int) -> Row | None:
    """The row with this name or id. A name comes first: it may consist of digits."""
    if isinstance(given, str):
        row = rows.filter(name=given).first()
        if row is not None or not given.isascii() or not given.isdigit():
            return row
        given = int(given[:20])
    # Larger numbers are no ids, and SQLite cannot even hold them.
    return rows.filter(pk=given).first() if 0 < given < 2**63 else None


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


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """How a group pulls an image: with a credential, or anonymously.

    With `is_guarded` some group has a credential for that registry, so that what it holds may not
    be for everybody.
    """

    credential: RegistryCredential | None = None
    is_guarded: bool = False

    @property
    def revision(self) -> str:
        """An id of this state of the credential that reveals nothing of it."""
        row = self.credential
        return f"{row.pk}.{row.version}" if row else ""

    def password(self) -> str:
        """The password in clear; empty without a credential.

        Raises:
            CannotUnseal: it was sealed with a key that is gone, or for another credential.
        """
        row = self.credential
        return unseal(row.sealed_password, context=row.password_context) if row else ""


def registry_access(*, group_id: int, image: ImageName) -> RegistryAccess:
    """What the group has for the registry of this image, its password still sealed."""
    aliases = [alias for alias, name in REGISTRY_ALIASES.items() if name == image.registry]
    names = [image.registry, *aliases]
    rows = list(RegistryCredential.objects.filter(registry__in=names).order_by("registry"))
    own = next((row for row in rows if row.group_id == group_id), None)
    return RegistryAccess(own, is_guarded=bool(rows))


def policy_family(policy_id: int) -> list[int]:
    """Ids of the policy and of everything below it, in one query."""
    children: dict[int, list[int]] = {}
    below = Policy.objects.filter(removed_at__isnull=True, parent__isnull=False)
    for child, parent in below.values_list("pk", "parent_id"):
        children.setdefault(parent, []).append(child)
    found = [policy_id]
    for one in found:
        found += children.get(one, [])
    return found
