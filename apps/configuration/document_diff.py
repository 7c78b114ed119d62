"""The values before and after, between two documents, for the audit log."""

from collections.abc import Iterable
from typing import Any

import msgspec

from apps.policies.document import NOUNS, Document, DocumentChange, compare

Fields = dict[str, Any]


def before_and_after(before: Document, after: Document, *, own: str = "") -> tuple[Fields, Fields]:
    """The fields that differ, on either side, named as `pool H100 capacity`.

    Args:
        own: the object that the entry is about, such as `policy Dev`: its fields need no name.
    """
    old: Fields = {}
    new: Fields = {}
    for change in compare(before, after):
        for side, document, has_it in (
            (old, before, change.what != "added"),
            (new, after, change.what != "removed"),
        ):
            if has_it:
                side.update(_facts(change, document, own, is_new=side is new))
    return old, new


def _facts(change: DocumentChange, document: Document, own: str, *, is_new: bool) -> Fields:
    noun = " ".join(filter(None, (NOUNS[change.kind], change.name)))
    prefix = "" if noun == own else f"{noun} "
    if change.field:
        return {f"{prefix}{change.field}": change.after if is_new else change.before}
    if change.what == "moved":
        return {f"{prefix}position": _position(change, document)}
    entry = _entry(change, document)
    return entry if not prefix else {noun: entry}


def _entries(change: DocumentChange, document: Document) -> Iterable[Any]:
    return getattr(document, change.kind) or ()


def _entry(change: DocumentChange, document: Document) -> Fields:
    """All of what was added or removed, but what is empty."""
    found = next((one for one in _entries(change, document) if one.name == change.name), None)
    facts: Fields = msgspec.to_builtins(found) if found is not None else {}
    return {name: value for name, value in facts.items() if value not in (None, "", [], {}, ())}


def _position(change: DocumentChange, document: Document) -> int | None:
    names = [one.name for one in _entries(change, document)]
    return names.index(change.name) + 1 if change.name in names else None
