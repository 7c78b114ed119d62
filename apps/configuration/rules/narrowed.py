"""To whom a policy was narrowed, as those see it who narrow it."""

from hashlib import blake2b

from django.db.models import Q, QuerySet

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.accounts.strangers import strangers_of
from apps.configuration.rules.granting import people_nameable_by
from apps.configuration.rules.rule import VERSION_BYTES
from apps.policies.models import Policy, PolicyChosen


def narrowing_version(policy: Policy) -> str:
    """Changes with the group of the policy and with whom it chose."""
    chosen = PolicyChosen.objects.filter(policy=policy).order_by("user")
    known = list(chosen.values_list("user", flat=True))
    text = f"{policy.group_id} {policy.is_narrowed} {known}".encode()
    return blake2b(text, digest_size=VERSION_BYTES).hexdigest()


def people_chosen(policy: Policy) -> QuerySet[User]:
    """Whom it chose, also who has left its group and might come back."""
    return User.objects.filter(
        pk__in=PolicyChosen.objects.filter(policy=policy).values("user").order_by()
    )


def chosen_told_to(user: User, policy: Policy) -> QuerySet[User]:
    """Those of them whose names the user sees: none of another tenant."""
    return people_chosen(policy).exclude(pk__in=strangers_of(user).values("pk"))


def people_choosable_by(user: User, policy: Policy) -> QuerySet[User]:
    """Of the group those whom this person may name; who is chosen already may stay."""
    members = Q(
        pk__in=User.groups.through._default_manager.filter(group=policy.group_id).values("user")
    )
    if is_admin(user):
        return User.objects.filter(members)
    nameable = Q(pk__in=people_nameable_by(user).values("pk"))
    known = chosen_told_to(user, policy)
    return User.objects.filter(members & (nameable | Q(pk__in=known.values("pk"))))
