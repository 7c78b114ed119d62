"""A rule as people see it: what one target gives to its subjects on one level."""

from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b

from django.contrib.auth.models import Group

from apps.accounts.models import User
from apps.configuration.rules.levels import Kind, Level, Source

ALL = "all"
VERSION_BYTES = 8


@dataclass(frozen=True, slots=True)
class Target:
    """What a rule is about. `object_id` is empty for all objects of the kind."""

    kind: Kind
    object_id: str = ""
    name: str = ""

    @property
    def key(self) -> str:
        return f"{self.kind.value}.{self.object_id or ALL}"

    @property
    def place(self) -> tuple[int, str, str]:
        """Where it stands in the list: what is about all objects comes before single ones."""
        return list(Kind).index(self.kind), self.name.lower() if self.object_id else "", self.key


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a rule names; `kind` is user, service_account or group."""

    kind: str
    id: int
    name: str

    @property
    def is_group(self) -> bool:
        return self.kind == "group"


@dataclass(frozen=True, slots=True)
class Rule:
    """What one target gives on one level; `version` changes with its subjects.

    `narrowed` says of a rule that a policy makes whether it names chosen people; `hidden` are whom
    it names, too, without its reader being told their names.
    """

    target: Target
    level: Level
    source: Source
    subjects: tuple[Subject, ...]
    made_by: tuple[Subject, ...]
    made_at: datetime | None
    narrowed: bool = False
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
        text = f"{self.key} {self.narrowed} {named}".encode()
        return blake2b(text, digest_size=VERSION_BYTES).hexdigest()

    @property
    def by_policy(self) -> bool:
        return self.source is Source.POLICY


@dataclass(frozen=True, slots=True)
class RuleFilter:
    """Which rules somebody looks for; what is empty does not filter.

    `object_id` is ALL for rules on a whole kind; `name` is part of the object's name.
    """

    kind: Kind | None = None
    object_id: str = ""
    name: str = ""
    level: Level | None = None
    source: Source | None = None
    user: int | None = None
    group: int | None = None

    @property
    def is_narrow(self) -> bool:
        return self != RuleFilter()


@dataclass(frozen=True, slots=True)
class RulePage:
    """The rules of some targets, and behind which target it goes on; empty at the end."""

    rules: tuple[Rule, ...]
    after: str = ""


def rule_key(target: Target, level: Level, source: Source = Source.PERSON) -> str:
    """What a rule is called in addresses."""
    return f"{target.key}.{level.value}.{source.value}"


def subject_of(row: User | Group) -> Subject:
    """A person, a service account or a group, as rules name it."""
    if isinstance(row, Group):
        return Subject("group", row.pk, row.name)
    return Subject("service_account" if row.is_service else "user", row.pk, row.username)
