"""How an entry of the audit log is hashed. Pure: readers of an export can do the same.

The hash of an entry is SHA-256, in hexadecimal, over the UTF-8 text of one JSON object: all
fields of the entry but `hash`, with `position` and `previous_hash`, sorted by name, without spaces,
characters beyond ASCII written as they are.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

FIELDS = (
    "id",
    "at",
    "verb",
    "actor_id",
    "actor",
    "acted_by_id",
    "acted_by",
    "object_type",
    "object_id",
    "object_name",
    "others",
    "before",
    "after",
    "details",
    "reason",
    "via",
    "request_id",
    "address",
    "position",
    "previous_hash",
)


def entry_facts(entry: Any) -> dict[str, Any]:
    """The plain values of an entry that are hashed and exported."""
    facts = {name: getattr(entry, name) for name in FIELDS}
    at: datetime = facts["at"]
    facts["at"] = at.astimezone(UTC).isoformat(timespec="microseconds")
    return facts


def entry_hash(facts: Mapping[str, Any]) -> str:
    """The hash of these facts."""
    written = json.dumps(
        {name: facts[name] for name in FIELDS},
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    )
    return hashlib.sha256(written.encode("utf-8", "surrogatepass")).hexdigest()
