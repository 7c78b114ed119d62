"""Names of what the lines of a report are for, as far as a user may see them."""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any

from django.db.models import QuerySet

from apps.access.selectors import (
    policies_visible_to,
    pools_visible_to,
    profiles_visible_to,
    queues_visible_to,
)
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.nodes.models import Node
from apps.policies.models import Policy, Pool, Profile, Queue
from apps.tasks.lifecycle.states import AttemptTier

# Key to label, and for a policy its parent.
Labels = Mapping[Any, tuple[str, int | None]]


class UsageGroup(StrEnum):
    """What a report has one line for."""

    POLICY = "policy"
    POOL = "pool"
    MODEL = "model"
    TIER = "tier"
    PROFILE = "profile"
    QUEUE = "queue"
    OWNER = "owner"

    @property
    def has_pools(self) -> bool:
        """Whether there are sums of single pools and tiers; else only by day and policy."""
        return self not in {UsageGroup.PROFILE, UsageGroup.QUEUE, UsageGroup.OWNER}

    @property
    def column(self) -> str:
        """What sums are grouped by. A queue keeps its profile."""
        return "queue__profile" if self is UsageGroup.PROFILE else self.value


def labels_of(by: UsageGroup, viewer: User, keys: Collection[Any]) -> Labels:
    """The labels of these keys; those that the viewer may not see are missing.

    Policies come with those above them, which may have used nothing themselves.
    """
    if by is UsageGroup.POLICY:
        return _policies(viewer, keys)
    if by is UsageGroup.MODEL:
        return {key: (key or "Unknown model", None) for key in _models(viewer, keys)}
    if by is UsageGroup.TIER:
        labels = dict(AttemptTier.choices)
        return {key: (str(labels.get(key, "Not recorded")), None) for key in keys}
    if by is UsageGroup.OWNER:
        # Which owners have a line of their own was decided by policy.
        people = User.objects.filter(pk__in=keys)
        return {one.pk: (one.get_username(), None) for one in people}
    rows = _rows(by, viewer)
    found = rows.filter(pk__in=keys).values_list("pk", "name", "removed_at")
    return {pk: (_name(name, removed_at), None) for pk, name, removed_at in found}


def _rows(by: UsageGroup, viewer: User) -> "QuerySet[Any]":
    """The objects that the viewer sees; administrators see removed ones, too."""
    sees_all = is_admin(viewer)
    if by is UsageGroup.POOL:
        return Pool.objects.all() if sees_all else pools_visible_to(viewer)
    if by is UsageGroup.PROFILE:
        return Profile.objects.all() if sees_all else profiles_visible_to(viewer)
    return Queue.objects.all() if sees_all else queues_visible_to(viewer)


def _models(viewer: User, keys: Collection[Any]) -> Iterable[str]:
    """Those that pools have which the viewer sees."""
    if is_admin(viewer):
        return keys
    nodes = Node.objects.filter(pool__in=pools_visible_to(viewer), gpu_model__in=keys)
    return set(nodes.values_list("gpu_model", flat=True))


def _policies(viewer: User, keys: Collection[Any]) -> Labels:
    rows = Policy.objects.all() if is_admin(viewer) else policies_visible_to(viewer)
    every = {
        pk: (_name(name, removed_at), parent)
        for pk, name, removed_at, parent in rows.values_list(
            "pk", "name", "removed_at", "parent_id"
        )
    }
    wanted: dict[int, tuple[str, int | None]] = {}
    for key in keys:
        at = key
        while at in every and at not in wanted:
            name, above = every[at]
            # One that the viewer does not see is not named either.
            wanted[at] = name, above if above in every else None
            at = above
    return wanted


def _name(name: str, removed_at: object) -> str:
    return f"{name} (removed)" if removed_at else name
