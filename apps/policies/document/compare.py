"""What differs between two documents, entry by entry and field by field."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

import msgspec

from apps.policies.document.entries import (
    Document,
    PolicyEntry,
    PoolEntry,
    ProfileEntry,
    QueueEntry,
    as_data,
)

Entries = Sequence[PoolEntry | ProfileEntry | PolicyEntry]
NOUNS = {
    "settings": "setting",
    "pools": "pool",
    "profiles": "profile",
    "policies": "policy",
    "queues": "queue",
    "groups": "group",
    "rules": "rule",
}


class DocumentChange(msgspec.Struct, frozen=True, kw_only=True):
    """One difference.

    `kind` is one of NOUNS; `name` is that of the entry (the new one); `what` is `added`,
    `removed`, `changed` or `moved`; `field`, `before` and `after` are set where a field changed.
    """

    kind: str
    name: str
    what: str
    field: str = ""
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        if self.kind == "settings":
            return f"setting {self.field}: {self.before} to {self.after}"
        noun = NOUNS[self.kind]
        if self.what == "changed":
            return f"{noun} {self.name}: {self.field} changed"
        return f"{noun} {self.name} {self.what}"


def compare(before: Document, after: Document) -> list[DocumentChange]:
    """Every difference, in the order of the document.

    Pools and profiles are joined by key, policies by id, so that a rename is a change of `name`.
    Policies are compared where both documents hold them.
    """
    changes = list(_fields("settings", "", *(as_data(d)["settings"] for d in (before, after))))
    changes += _entries("pools", before.pools, after.pools)
    changes += _entries("profiles", before.profiles, after.profiles)
    if before.policies is not None and after.policies is not None:
        changes += _entries("policies", before.policies, after.policies)
    return changes


def compare_queues(before: Document, after: Document) -> list[DocumentChange]:
    """The queues that differ, one by one; `compare` shows them as a field of their policy."""
    sides = [_queues(before), _queues(after)]
    old, new = sides
    gone = [queue for key, queue in old.items() if key not in new]
    changes = [DocumentChange(kind="queues", name=one.name, what="removed") for one in gone]
    for key, queue in new.items():
        if key not in old:
            changes.append(DocumentChange(kind="queues", name=queue.name, what="added"))
            continue
        values = [msgspec.to_builtins(one) | {"profile": key[1]} for one in (old[key], queue)]
        changes += _fields("queues", queue.name, *values)
    return changes


def _queues(document: Document) -> dict[tuple[int, str], QueueEntry]:
    keys = {profile.name: profile.key for profile in document.profiles}
    return {
        (policy.id, keys.get(queue.profile, queue.profile)): queue
        for policy in document.policies or ()
        for queue in policy.queues
    }


def _entries(kind: str, before: Entries, after: Entries) -> Iterator[DocumentChange]:
    old, new = {_identity(e): e for e in before}, {_identity(e): e for e in after}
    for identity, entry in old.items():
        if identity not in new:
            yield DocumentChange(kind=kind, name=entry.name, what="removed")
    unmoved = _unmoved([i for i in old if i in new], [i for i in new if i in old])
    for identity, entry in new.items():
        if identity not in old:
            yield DocumentChange(kind=kind, name=entry.name, what="added")
            continue
        if identity not in unmoved:
            yield DocumentChange(kind=kind, name=entry.name, what="moved")
        yield from _fields(
            kind, entry.name, msgspec.to_builtins(old[identity]), msgspec.to_builtins(entry)
        )


def _unmoved(before: Sequence[Hashable], after: Sequence[Hashable]) -> set[Hashable]:
    """The entries that keep their place when as few as possible count as moved."""
    blocks = SequenceMatcher(a=before, b=after, autojunk=False).get_matching_blocks()
    return {identity for block in blocks for identity in before[block.a : block.a + block.size]}


def _identity(entry: PoolEntry | ProfileEntry | PolicyEntry) -> Hashable:
    if isinstance(entry, PolicyEntry):
        return entry.id
    return entry.key or entry.name.lower()


def _fields(
    kind: str, name: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[DocumentChange]:
    for field, value in after.items():
        if field in {"key", "id"} or (kind == "pools" and _is_linking(field, before, value)):
            continue
        if before.get(field) != value:
            yield DocumentChange(
                kind=kind,
                name=name,
                what="changed",
                field=field,
                before=before.get(field),
                after=value,
            )


def _is_linking(field: str, before: Mapping[str, Any], value: Any) -> bool:
    """Whether a pool's order differs only by added or removed links, which the profile shows."""
    if field != "profiles":
        return False
    old, new = before.get(field, ()), value
    return [name for name in old if name in new] == [name for name in new if name in old]
