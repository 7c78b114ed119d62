"""The members to whom a policy is restricted, as visible to those who may restrict it."""

from hashlib import blake2b

from django.db.models import Q, QuerySet

from apps.access.isolation import users_isolated_from
from apps.access.rules.delegation import people_nameable_by
from apps.access.rules.rule import VERSION_BYTES
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.policies.models import Policy, PolicyMember


def restriction_version(policy: Policy) -> str:
    """A digest of the policy's group and of the members to whom it is restricted."""
    members = PolicyMember.objects.filter(policy=policy).order_by("user")
    known = list(members.values_list("user", flat=True))
    text = f"{policy.group_id} {policy.is_restricted} {known}".encode()
    return blake2b(text, digest_size=VERSION_BYTES).hexdigest()


def restricted_members(policy: Policy) -> QuerySet[User]:
    """The members to whom it is restricted, including those who left its group."""
    return User.objects.filter(
        pk__in=PolicyMember.objects.filter(policy=policy).values("user").order_by()
    )


def restricted_members_visible_to(user: User, policy: Policy) -> QuerySet[User]:
    """The restricted members whose names the user sees: none of another tenant."""
    return restricted_members(policy).exclude(pk__in=users_isolated_from(user).values("pk"))


def restrictable_members(user: User, policy: Policy) -> QuerySet[User]:
    """Users of the group whom this person may name; present members may stay."""
    in_group = Q(
        pk__in=User.groups.through._default_manager.filter(group=policy.group_id).values("user")
    )
    if is_admin(user):
        return User.objects.filter(in_group)
    nameable = Q(pk__in=people_nameable_by(user).values("pk"))
    known = restricted_members_visible_to(user, policy)
    return User.objects.filter(in_group & (nameable | Q(pk__in=known.values("pk"))))
