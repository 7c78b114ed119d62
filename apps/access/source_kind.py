"""What a source of permissions is, and what each kind of source answers."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db.models import Q

from apps.access.levels import EXCEED, RESOURCES, Resource, RuleKind
from apps.accounts.models import User
from apps.accounts.selectors import groups_by_id


@dataclass(frozen=True, slots=True)
class PermissionSource:
    """One source of a permission, or, with `is_denial`, what denies it.

    Args:
        code: the kind of source; `sentences.source_sentence` has a sentence for each.
        on: kind and name of the rule's target; the name is empty for all of a kind.
        group: the group that the rule names; empty if it names the person.
        by: the maker of the rule, if known.
    """

    code: str
    on: tuple[str, str] = ("", "")
    group: str = ""
    by: str = ""
    is_denial: bool = False


PermissionSources = Iterator[PermissionSource]


@dataclass(frozen=True, slots=True)
class ObjectPermission:
    """A permission on objects of one kind.

    Args:
        verb: `view`, `enqueue`, `manage` or `exceed_limit`; of vaults `view`, `read`, `change` or
            `own`, of volumes `view` or `change`, of tasks `view`, `queue`, `log` or `manage`.
        path: from the rows that are filtered to the id of the object.
    """

    resource: Resource
    verb: str
    path: str = "pk"

    @property
    def codename(self) -> str:
        return self.resource.codename(self.verb)

    @property
    def codenames(self) -> tuple[str, ...]:
        """The permissions of rules that give it."""
        return self.resource.codenames_giving(self.verb)

    @property
    def on_policy(self) -> "ObjectPermission":
        """For queues, the same permission on their policies."""
        return ObjectPermission(RESOURCES[RuleKind.POLICY], self.verb, path="policy")


class PermissionHolder:
    """A user with the groups whose permissions they have; read when a source needs them."""

    def __init__(self, user: User) -> None:
        self.user = user

    @cached_property
    def groups(self) -> Mapping[int, str]:
        """Names by id."""
        return groups_by_id(self.user)


class SourceKind(ABC):
    """A kind of permission source, evaluated in three directions that must agree."""

    @abstractmethod
    def gives(self, permission: ObjectPermission) -> bool:
        """Whether a source of this kind can give the permission at all."""

    @abstractmethod
    def rows(self, permission: ObjectPermission, holder: PermissionHolder) -> Q:
        """The objects on which it gives the user the permission."""

    @abstractmethod
    def people(self, permission: ObjectPermission, row: Any) -> Q:
        """The users to whom it gives the permission on this object."""

    @abstractmethod
    def reasons(
        self, permission: ObjectPermission, row: Any, holder: PermissionHolder
    ) -> PermissionSources:
        """The sources of this kind that give the user the permission on this object."""

    def is_evident(self, permission: ObjectPermission, row: Any, holder: PermissionHolder) -> bool:
        """Whether the object itself shows that the user has it, without a statement."""
        return False

    def crosses_tenants(self, permission: ObjectPermission) -> bool:
        """Whether it reaches into trees of other tenants than the user's.

        Exceeding a limit gives access to nothing by itself.
        """
        return permission.verb == EXCEED
