"""The profiles that are too large for a policy, and those that may be connected to it."""

from collections.abc import Sequence
from dataclasses import dataclass

from apps.access.selectors import profiles_connectable_by
from apps.accounts.models import User
from apps.core.units import milli_text, quantities_milli, unit_of
from apps.policies.models import Policy, PolicyAmount, Profile, Queue


@dataclass(frozen=True, slots=True)
class PolicyLimit:
    """A limit that applies to a policy: its own, or one of a policy above it."""

    policy: str
    key: str
    milli: int
    text: str


@dataclass(frozen=True, slots=True)
class ConnectableProfile:
    """A live profile that a policy does not have yet; `problem` says why it cannot be connected."""

    profile: Profile
    problem: str


def limits_above(policy: Policy) -> tuple[PolicyLimit, ...]:
    """The limits of the policy and of everything above it, its own first."""
    found: list[PolicyLimit] = []
    above: Policy | None = policy
    while above is not None:
        rows = PolicyAmount.objects.filter(policy=above, limit_milli__isnull=False)
        name = above.name
        found += [PolicyLimit(name, row.key, row.limit_milli or 0, row.limit_text) for row in rows]
        above = above.parent
    return tuple(found)


def above_limit(profile: Profile, limits: Sequence[PolicyLimit]) -> str:
    """Why one task of the profile exceeds a limit; empty if it does not."""
    request = quantities_milli(profile.request)
    for limit in limits:
        wanted = request.get(limit.key, 0) * profile.replicas
        if wanted > limit.milli:
            return (
                f"{profile.name} takes {milli_text(wanted)} {unit_of(limit.key)}, more than "
                f"the limit of {limit.text} of policy {limit.policy}"
            )
    return ""


def profiles_to_connect(actor: User, policy: Policy) -> list[ConnectableProfile]:
    """Those that the actor may connect and that are not connected yet, in their order."""
    connected = Queue.objects.filter(policy=policy, removed_at__isnull=True)
    profiles = profiles_connectable_by(actor).exclude(pk__in=connected.values("profile"))
    limits = limits_above(policy)
    return [
        ConnectableProfile(one, above_limit(one, limits))
        for one in profiles.order_by("position", "pk")
    ]
