"""Facts about policies and their people, registries and resource keys; of no reader."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from django.contrib.auth.models import Group
from django.db.models import Exists, Model, OuterRef, QuerySet

from apps.accounts.models import User
from apps.accounts.selectors import Person, group_ids
from apps.core.images import REGISTRY_ALIASES, ImageName
from apps.core.keyring import unseal
from apps.policies.models import (
    Policy,
    PolicyGroupPermission,
    PolicyMember,
    PolicyUserPermission,
    Pool,
    RegistryCredential,
)

EXCEED_LIMIT = "exceed_limit_policy"


def may_exceed_limit(policy_id: int) -> set[int]:
    """Ids of the people whose preemptible tasks skip the limit of this policy.

    Only those to whom a rule gives the permission, by name or by a group. Administrators do not
    have it by themselves, since such tasks always count as over quota.
    """
    users, groups = limit_exceeders(policy_id)
    members = User.objects.filter(groups__in=groups)
    return set((users | members).values_list("pk", flat=True))


def limit_exceeders(policy: Policy | int) -> tuple[QuerySet[User], QuerySet[Group]]:
    """To whom the permission to exceed the limit of a policy was given."""
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


def policy_families(policies: Iterable[int]) -> dict[int, list[int]]:
    """Of each policy, ids of itself and of all below it, removed ones too, in one query."""
    parents = dict(Policy.objects.values_list("pk", "parent_id"))
    families: dict[int, list[int]] = {pk: [] for pk in policies}
    for policy in parents:
        above: int | None = policy
        while above is not None:
            if above in families:
                families[above].append(policy)
            above = parents.get(above)
    return families


def is_policy_paused(policy_id: int) -> bool:
    """Whether the policy or one above it is paused, as a pass decides it; one query."""
    rows = Policy.objects.values_list("pk", "parent_id", "paused_at")
    known = {pk: (parent, paused) for pk, parent, paused in rows}
    above: int | None = policy_id
    while above is not None:
        above, paused = known[above]
        if paused is not None:
            return True
    return False


def policy_applies_to(policy: Policy, user: Person) -> bool:
    """Whether the policy applies to the user: in its group, and a member where it is restricted."""
    if policy.group_id not in group_ids(user):
        return False
    return (
        not policy.is_restricted
        or PolicyMember.objects.filter(policy=policy, user=user.pk).exists()
    )


def people_of_policy(policy: Policy) -> QuerySet[User]:
    """To whom the policy applies: its group, or the members to whom it is restricted."""
    people = User.objects.filter(groups=policy.group_id)
    if not policy.is_restricted:
        return people
    return people.filter(pk__in=PolicyMember.objects.filter(policy=policy).values("user"))


def restricted_members_in_group(policy_ids: Iterable[int]) -> QuerySet[PolicyMember]:
    """The members of these restricted policies, as far as they are in the policy's group."""
    members = User.groups.through._default_manager.filter(
        user=OuterRef("user"), group=OuterRef("policy__group")
    )
    return PolicyMember.objects.filter(Exists(members), policy__in=list(policy_ids))
