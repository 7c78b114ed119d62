"""A rule as people see it: the level that subjects have on one target."""

from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from django.contrib.auth.models import Group

from apps.access.levels import RESOURCES, Level, RuleKind
from apps.accounts.models import User
from apps.accounts.models.grants import GrantSource

ALL = "all"
VERSION_BYTES = 8


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a rule. `object_id` is empty for all objects of the kind."""

    kind: RuleKind
    object_id: str = ""
    name: str = ""

    @property
    def key(self) -> str:
        return f"{self.kind.value}.{self.object_id or ALL}"

    @property
    def sort_key(self) -> tuple[int, str, str]:
        """Its place in the list: rules on all objects of a kind come before those on single ones.

        Of kinds with many objects, these are in the order of their ids.
        """
        is_by_name = self.object_id and RESOURCES[self.kind].has_few
        return (
            list(RuleKind).index(self.kind),
            self.name.lower() if is_by_name else "",
            self.key,
        )


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject of a rule; `kind` is user, service_account or group."""

    kind: str
    id: int
    name: str

    @property
    def is_group(self) -> bool:
        return self.kind == "group"


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule on one target and level; `version` changes with its subjects.

    `is_restricted` says of a rule that a policy makes whether it names members; `hidden` is the
    number of others that it names and whose names its reader may not see.
    """

    target: Target
    level: Level
    source: GrantSource
    subjects: tuple[Subject, ...]
    made_by: tuple[Subject, ...]
    made_at: datetime | None
    is_restricted: bool = False
    hidden: tuple[Subject, ...] = ()

    @property
    def makers(self) -> list[str]:
        return [one.name for one in self.made_by]

    @property
    def key(self) -> str:
        return rule_key(self.target, self.level, self.source)

    @property
    def version(self) -> str:
        named = sorted((one.is_group, one.id) for one in (*self.subjects, *self.hidden))
        text = f"{self.key} {self.is_restricted} {named}".encode()
        return blake2b(text, digest_size=VERSION_BYTES).hexdigest()

    @property
    def by_policy(self) -> bool:
        return self.source is GrantSource.POLICY


@dataclass(frozen=True, slots=True)
class RuleFilter:
    """Which rules are wanted; what is empty does not filter.

    `object_id` is ALL for rules on a whole kind; `name` is part of the object's name.
    """

    kind: RuleKind | None = None
    object_id: str = ""
    name: str = ""
    level: Level | None = None
    source: GrantSource | None = None
    user: int | None = None
    group: int | None = None

    @property
    def is_filtered(self) -> bool:
        return self != RuleFilter()


@dataclass(frozen=True, slots=True)
class RulePage:
    """The rules of some targets, and the target before the next page; empty at the end."""

    rules: tuple[Rule, ...]
    after: str = ""


def rule_key(target: Target, level: Level, source: GrantSource = GrantSource.PERSON) -> str:
    """The key of a rule in addresses."""
    return f"{target.key}.{level.value}.{source.value}"


def subject_of(row: User | Group) -> Subject:
    """A person, a service account or a group as a subject of rules."""
    if isinstance(row, Group):
        return Subject("group", row.pk, row.name)
    return Subject("service_account" if row.is_service else "user", row.pk, row.username)
