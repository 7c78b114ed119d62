"""What rules are about, and what each of their levels stands for.

A level is stored as all its permissions, so that the highest of them names it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.contrib.auth.models import Permission
from django.db import models
from django.utils.translation import gettext_lazy as _

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


class Kind(models.TextChoices):
    """What a rule is about: an object of this kind, or all of them."""

    POLICY = "policy", _("Policy")
    QUEUE = "queue", _("Queue")
    POOL = "pool", _("Pool")
    VAULT = "vault", _("Vault")


class Level(models.TextChoices):
    """How much a rule gives. Each but the last includes those before it."""

    READ = "read", _("Read")
    MODIFY = "modify", _("Read and modify")
    MANAGE = "manage", _("Manage")
    EXCEED = "exceed", _("Exceed the limit")


class Source(StrEnum):
    """Who made a rule."""

    PERSON = "person"
    POLICY = "policy"


@dataclass(frozen=True, slots=True)
class Resource:
    """Where the rules of one kind are stored; `verbs` per level, the highest last."""

    kind: Kind
    app: str
    model: type[Any]
    by_user: type[Any]
    by_group: type[Any]
    verbs: Mapping[Level, tuple[str, ...]]
    has_kind_rules: bool = True

    @property
    def name(self) -> str:
        return str(self.model._meta.model_name)

    def codenames(self, level: Level) -> tuple[str, ...]:
        """The permissions that make the level, the highest last."""
        return tuple(self.codename(verb) for verb in self.verbs[level])

    def codename(self, verb: str) -> str:
        return f"{verb}_{self.name}"

    def level_of(self, codename: str) -> Level | None:
        """The level whose highest permission this is."""
        return next((one for one in self.verbs if self.codenames(one)[-1] == codename), None)

    def known(self) -> models.QuerySet[Permission]:
        """Every permission that stands in a rule of this kind."""
        every = {name for level in self.verbs for name in self.codenames(level)}
        return Permission.objects.filter(content_type__app_label=self.app, codename__in=every)


_QUEUEING = {
    Level.READ: ("view",),
    Level.MODIFY: ("view", "enqueue"),
    Level.MANAGE: ("view", "enqueue", "manage"),
}
RESOURCES: Mapping[Kind, Resource] = {
    Kind.POLICY: Resource(
        Kind.POLICY,
        "policies",
        Policy,
        PolicyUserPermission,
        PolicyGroupPermission,
        {**_QUEUEING, Level.EXCEED: ("exceed_limit",)},
    ),
    Kind.QUEUE: Resource(
        Kind.QUEUE, "policies", Queue, QueueUserPermission, QueueGroupPermission, _QUEUEING
    ),
    Kind.POOL: Resource(
        Kind.POOL,
        "policies",
        Pool,
        PoolUserPermission,
        PoolGroupPermission,
        {Level.READ: ("view",)},
    ),
    Kind.VAULT: Resource(
        Kind.VAULT,
        "vaults",
        Vault,
        VaultUserPermission,
        VaultGroupPermission,
        {Level.READ: ("view",), Level.MODIFY: ("view", "change")},
        has_kind_rules=False,
    ),
}
# Exceeding a limit stands beside the others: it neither includes them nor is included.
RANKS = (Level.READ, Level.MODIFY, Level.MANAGE)


def highest(levels: Iterable[Level]) -> Level:
    """Of those that include each other."""
    return max(levels, key=RANKS.index)
