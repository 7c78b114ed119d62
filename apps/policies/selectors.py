"""What a person may see of pools, profiles, policies and queues.

Administrators see everything. Others see the policies whose group they are in or that somebody
let them see, the queues on which they hold `view_queue`, and the profiles of those queues. Pools
are seen through their links by administrators, and by those who were given `view_pool`.
"""

from dataclasses import dataclass
from typing import TypeVar

from django.contrib.auth.models import Group
from django.db.models import Model, Q, QuerySet

from apps.accounts.models import User
from apps.accounts.selectors import (
    Person,
    group_ids,
    is_admin,
    is_queue_admin,
    tenants_administered_by,
)
from apps.core.keyring import unseal
from apps.policies.images import registry_of
from apps.policies.models import (
    Policy,
    PolicyGroupPermission,
    PolicyUserPermission,
    Pool,
    PoolGroupPermission,
    PoolUserPermission,
    Profile,
    Queue,
    QueueGroupPermission,
    QueueUserPermission,
    RegistryCredential,
)
from apps.policies.tenancy import administered, not_apart, policies_changeable_by

EXCEED_LIMIT = "exceed_limit_policy"

_GRANTS = {
    Policy: (PolicyUserPermission, PolicyGroupPermission),
    Pool: (PoolUserPermission, PoolGroupPermission),
    Queue: (QueueUserPermission, QueueGroupPermission),
}


def _granted(model: type[Policy | Pool | Queue], user: Person, right: str) -> Q:
    """Rows of `model` on which the user, or a group of theirs, holds `right`."""
    if not isinstance(user, User) or not user.is_active:
        return Q(pk__in=[])
    by_user, by_group = _GRANTS[model]
    users = by_user._default_manager.filter(user=user, permission__codename=right)
    groups = by_group._default_manager.filter(
        group__in=list(group_ids(user)), permission__codename=right
    )
    found = Q(pk__in=users.values("content_object_id")) | Q(
        pk__in=groups.values("content_object_id")
    )
    return (found | administered(model, user)) & not_apart(model, user)


def policies_visible_to(user: Person) -> QuerySet[Policy]:
    """Policies of one's groups, and those one was let see; removed ones never."""
    live = Policy.objects.filter(removed_at__isnull=True)
    if is_admin(user):
        return live
    return live.filter(Q(group__in=list(group_ids(user))) | _granted(Policy, user, "view_policy"))


def queues_visible_to(user: Person) -> QuerySet[Queue]:
    """Queues on which one holds `view_queue`."""
    live = Queue.objects.filter(removed_at__isnull=True)
    if is_queue_admin(user):
        return live
    return live.filter(_granted(Queue, user, "view_queue"))


def queues_open_to(user: Person) -> QuerySet[Queue]:
    """Queues on which one may enqueue."""
    live = Queue.objects.filter(removed_at__isnull=True)
    return live if is_admin(user) else live.filter(_granted(Queue, user, "enqueue_queue"))


def queues_managed_by(user: Person) -> QuerySet[Queue]:
    """Queues on which one may reorder, abort others' tasks and pause."""
    live = Queue.objects.filter(removed_at__isnull=True)
    return live if is_admin(user) else live.filter(_granted(Queue, user, "manage_queue"))


def pools_visible_to(user: Person) -> QuerySet[Pool]:
    live = Pool.objects.filter(removed_at__isnull=True)
    return live if is_admin(user) else live.filter(_granted(Pool, user, "view_pool"))


def profiles_visible_to(user: Person) -> QuerySet[Profile]:
    """Profiles of the queues one sees; administrators of tenants, who connect them, see all."""
    live = Profile.objects.filter(removed_at__isnull=True)
    if is_admin(user) or tenants_administered_by(user):
        return live
    return live.filter(pk__in=queues_visible_to(user).values("profile_id"))


def may_exceed_limit(policy_id: int) -> set[int]:
    """Ids of the people whose preemptible tasks skip the limit of this policy.

    Only whom somebody gave the right, by name or by a group; administrators not by themselves,
    since such work always stands as over quota.
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
    """Resource keys that some live pool lists, beside the built-in ones."""
    capacities = Pool.objects.filter(removed_at__isnull=True).values_list("capacity", flat=True)
    return {key for capacity in capacities for key in capacity}


Row = TypeVar("Row", bound=Model)


def by_name_or_id(rows: QuerySet[Row], given: str | int) -> Row | None:
    """The row that somebody names. A name comes first: it may consist of digits."""
    if isinstance(given, str):
        row = rows.filter(name=given).first()
        if row is not None or not given.isascii() or not given.isdigit():
            return row
        given = int(given[:20])
    # Larger numbers are no ids, and SQLite cannot even hold them.
    return rows.filter(pk=given).first() if 0 < given < 2**63 else None


def policies_connectable_by(user: Person) -> QuerySet[Policy]:
    """Policies to which one may connect profiles; queue administrators make queues anywhere."""
    live = Policy.objects.filter(removed_at__isnull=True)
    return live if is_queue_admin(user) else policies_changeable_by(user)


def queues_settable_by(user: Person) -> QuerySet[Queue]:
    """Queues whose settings one changes, and which one closes."""
    live = Queue.objects.filter(removed_at__isnull=True)
    if is_queue_admin(user):
        return live
    return live.filter(policy__in=policies_changeable_by(user).values("pk"))


def profiles_connectable_by(user: Person) -> QuerySet[Profile]:
    """Profiles that one may connect to a policy."""
    live = Profile.objects.filter(removed_at__isnull=True)
    return live if is_queue_admin(user) or tenants_administered_by(user) else live.none()


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """With what a group fetches an image; without a credential as anybody may.

    With `is_guarded` some group has a credential for that registry, so that what it holds may not
    be for everybody.
    """

    credential: RegistryCredential | None = None
    is_guarded: bool = False

    @property
    def revision(self) -> str:
        """Names this state of the credential, and tells nothing of it."""
        row = self.credential
        return f"{row.pk}.{row.version}" if row else ""

    def password(self) -> str:
        """The password in clear; empty without a credential.

        Raises:
            KeyMissing: it was sealed with a key that is not in the key ring any more.
        """
        return unseal(self.credential.sealed_password) if self.credential else ""


def registry_access(*, group_id: int, image: str) -> RegistryAccess:
    """What the group has for the registry of this image, its password still sealed."""
    rows = list(RegistryCredential.objects.filter(registry=registry_of(image)))
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
