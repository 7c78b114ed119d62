"""What a configuration file may hold next to the entries of the document.

A file may be partial: what it does not name stays as it is.
"""

from typing import Literal

import msgspec

from apps.policies.document.entries import Name, Text

RuleTarget = Literal["policy", "queue", "pool", "volume"]
RuleLevel = Literal["read", "modify", "manage", "exceed"]
Names = tuple[Name, ...]


class GroupEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A group; its members are not part of a file. `description` None stays as it is."""

    name: Name
    description: Text | None = None


class RuleName(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Which rule; `name` is that of the object, empty: every object of the kind."""

    kind: RuleTarget
    name: Name = ""
    level: RuleLevel

    @property
    def label(self) -> str:
        """As it is called in changes: `read on policy Dev`."""
        target = f"{self.kind} {self.name}" if self.name else f"every {self.kind}"
        return f"{self.level} on {target}"


class RuleEntry(RuleName, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A rule with all of its subjects; `users` are user names, of service accounts too."""

    users: Names = ()
    groups: Names = ()


class Removals(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What is removed, by name; what is not there any more is passed over."""

    pools: Names = ()
    profiles: Names = ()
    policies: Names = ()
    queues: Names = ()
    rules: tuple[RuleName, ...] = ()


class FileParts(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The parts of a file that the document does not have.

    `queuing_order` names policies whose queues come first in every profile, in this order.
    """

    groups: tuple[GroupEntry, ...] = ()
    rules: tuple[RuleEntry, ...] = ()
    queuing_order: Names = ()
    remove: Removals = Removals()
