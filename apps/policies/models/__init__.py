"""Pools, profiles, policies and queues, live and as draft."""

from apps.policies.models.draft import (
    DraftPool,
    DraftPoolLink,
    DraftProfile,
    DraftQueueRank,
    DraftState,
)
from apps.policies.models.live import LiveState, Pool, PoolLink, Profile
from apps.policies.models.permissions import (
    PolicyGroupPermission,
    PolicyMember,
    PolicyUserPermission,
    PoolGroupPermission,
    PoolUserPermission,
    QueueGroupPermission,
    QueueUserPermission,
)
from apps.policies.models.policies import Policy, PolicyAmount, PolicySpending, Queue
from apps.policies.models.registries import RegistryCredential

__all__ = [
    "DraftPool",
    "DraftPoolLink",
    "DraftProfile",
    "DraftQueueRank",
    "DraftState",
    "LiveState",
    "Policy",
    "PolicyAmount",
    "PolicyGroupPermission",
    "PolicyMember",
    "PolicySpending",
    "PolicyUserPermission",
    "Pool",
    "PoolGroupPermission",
    "PoolLink",
    "PoolUserPermission",
    "Profile",
    "Queue",
    "QueueGroupPermission",
    "QueueUserPermission",
    "RegistryCredential",
]
