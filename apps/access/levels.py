"""The kinds of rules, and the permissions of each level.

A level is stored as all its permissions, so that the highest of them names it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import Permission
from django.db import models

from apps.policies.models import (
    Policy,
    PolicyGroupPermission,
    PolicyUserPermission,
    Pool,
    PoolGroupPermission,
    PoolUserPermission,
    Queue,
    QueueGroupPermission,
    QueueUserPermission,
)
from apps.vaults.models import Vault, VaultGroupPermission, VaultUserPermission


class RuleKind(models.TextChoices):
    """The kind of a rule's target: an object of this kind, or all of them."""

    POLICY = "policy", "Policy"
    QUEUE = "queue", "Queue"
    POOL = "pool", "Pool"
    VAULT = "vault", "Vault"
    VOLUME = "volume", "Volume"
    TASK = "task", "Task"


class Level(models.TextChoices):
    """How much a rule gives. Each but the last includes those before it."""

    READ = "read", "Read"
    MODIFY = "modify", "Read and modify"
    MANAGE = "manage", "Manage"
    EXCEED = "exceed", "Exceed the limit"


_NOT_REMOVED, _EVERY = models.Q(removed_at__isnull=True), models.Q()


def _of_no_policy(_row: Any) -> Policy | None:
    return None


@dataclass(frozen=True, slots=True)
class Resource:
    """Where the rules of one kind are stored.

    Args:
        verbs: per level, the highest last.
        tenant_path: from an object to its tenant; empty where no tenant has objects of the kind.
        is_isolated_by_owner: whether an object in no tenant's tree belongs to its owner's tenant.
        policy_of: the policy to which an object belongs.
        given_by: the verbs of rules that give a verb, where not the one of the same name alone.
        live: the objects that were not removed.
        ruled: those of them that can have rules.
        is_managed: whether users who hold `manage` on an object make its rules.
        has_few: whether a form can list all objects; a list of rules has the others last.
    """

    kind: RuleKind
    app: str
    model: type[Any]
    by_user: type[Any]
    by_group: type[Any]
    verbs: Mapping[Level, tuple[str, ...]]
    has_kind_rules: bool = True
    tenant_path: str = ""
    is_isolated_by_owner: bool = False
    policy_of: Callable[[Any], Policy | None] = _of_no_policy
    given_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    live: models.Q = _NOT_REMOVED
    ruled: models.Q = _EVERY
    is_managed: bool = False
    has_few: bool = True

    @property
    def name(self) -> str:
        return str(self.model._meta.model_name)

    def codenames(self, level: Level) -> tuple[str, ...]:
        """The permissions that make the level, the highest last."""
        return tuple(self.codename(verb) for verb in self.verbs[level])

    def codename(self, verb: str) -> str:
        return f"{verb}_{self.name}"

    def codenames_giving(self, verb: str) -> tuple[str, ...]:
        """The permissions of rules that give the verb; none where no rule gives it."""
        known = {one for verbs in self.verbs.values() for one in verbs}
        return tuple(self.codename(one) for one in self.given_by.get(verb, (verb,)) if one in known)

    def level_of(self, codename: str) -> Level | None:
        """The level whose highest permission this is."""
        return next((one for one in self.verbs if self.codenames(one)[-1] == codename), None)

    def permissions(self) -> models.QuerySet[Permission]:
        """Every permission of rules of this kind."""
        every = {name for level in self.verbs for name in self.codenames(level)}
        return Permission.objects.filter(content_type__app_label=self.app, codename__in=every)


EXCEED = "exceed_limit"
_QUEUEING = {
    Level.READ: ("view",),
    Level.MODIFY: ("view", "enqueue"),
    Level.MANAGE: ("view", "enqueue", "manage"),
}
# Apps above this one add their kinds (`resource_register`).
RESOURCES: dict[RuleKind, Resource] = {
    RuleKind.POLICY: Resource(
        RuleKind.POLICY,
        "policies",
        Policy,
        PolicyUserPermission,
        PolicyGroupPermission,
        {**_QUEUEING, Level.EXCEED: (EXCEED,)},
        tenant_path="tenant",
        policy_of=lambda policy: policy,
        is_managed=True,
    ),
    RuleKind.QUEUE: Resource(
        RuleKind.QUEUE,
        "policies",
        Queue,
        QueueUserPermission,
        QueueGroupPermission,
        _QUEUEING,
        tenant_path="policy__tenant",
        policy_of=lambda queue: queue.policy,
        is_managed=True,
    ),
    RuleKind.POOL: Resource(
        RuleKind.POOL,
        "policies",
        Pool,
        PoolUserPermission,
        PoolGroupPermission,
        {Level.READ: ("view",)},
    ),
    RuleKind.VAULT: Resource(
        RuleKind.VAULT,
        "vaults",
        Vault,
        VaultUserPermission,
        VaultGroupPermission,
        {Level.READ: ("view",), Level.MODIFY: ("view", "change")},
        has_kind_rules=False,
        tenant_path="group__belongs__tenant",
        is_isolated_by_owner=True,
        given_by={"view": ("view", "change"), "read": ("view", "change")},
        ruled=models.Q(group__isnull=False),
    ),
}
# Exceeding a limit is separate: it neither includes the other levels nor is included.
LEVEL_ORDER = (Level.READ, Level.MODIFY, Level.MANAGE)


def highest(levels: Iterable[Level]) -> Level:
    """The highest of the levels that include each other."""
    return max(levels, key=LEVEL_ORDER.index)


def resource_of(model: type[Any]) -> Resource:
    """Where the rules on objects of this model are stored."""
    return next(one for one in RESOURCES.values() if one.model is model)


def resource_register(resource: Resource) -> None:
    """Add a kind of an app above this one, when Django starts."""
    RESOURCES[resource.kind] = resource
