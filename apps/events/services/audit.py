"""Adding to the audit log."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Model

from apps.core.notifications import after_commit
from apps.core.origin import COMMAND_LINE, origin
from apps.events.models import AuditEntry
from apps.events.models.audit import NAME_LENGTH
from apps.events.sanitize import sanitize, text
from apps.events.services.entries import NewEvent

SEAL = "events.seal_audit"
# Keys of an event's data that have a column of their own.
COLUMNS = frozenset({"name", "reason", "note", "before", "after", "others"})
UNKNOWN = "nobody signed in"


def audit_record(
    verb: str,
    *,
    actor: Model | None,
    object_type: str,
    object_id: object,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Add an entry to the audit log for something that is no event, such as a refused log-in."""
    audit_add(
        [
            NewEvent(
                kind=verb,
                object_type=object_type,
                object_id=object_id,
                actor_id=actor.pk if actor is not None else None,
                acted_by_id=getattr(actor, "acted_by_id", None),
                data=data or {},
            )
        ]
    )


def audit_add(entries: Sequence[NewEvent]) -> None:
    """Add entries with the transaction that is open; they are sealed once that has committed."""
    if not entries:
        return
    ids = {one for entry in entries for one in (entry.actor_id, entry.acted_by_id)}
    names = _names({one for one in ids if one is not None})
    AuditEntry.objects.bulk_create([_row(entry, names) for entry in entries])
    after_commit(notify=[SEAL], topics=["audit"])


def _row(entry: NewEvent, names: Mapping[int, str]) -> AuditEntry:
    data = sanitize(entry.data)
    where = origin()
    before, after = _differences(_mapping(data.get("before")), _mapping(data.get("after")))
    details = {key: value for key, value in data.items() if key not in COLUMNS}
    if where.command:
        details["command"] = where.command
    return AuditEntry(
        verb=text(entry.kind, most=100),
        actor_id=entry.actor_id,
        actor=_actor_name(entry.actor_id, names),
        acted_by_id=entry.acted_by_id,
        acted_by=names.get(entry.acted_by_id or 0, ""),
        object_type=entry.object_type,
        object_id=text(entry.object_id, most=64),
        object_name=text(data.get("name") or "", most=NAME_LENGTH),
        others=_others(entry, data.get("others")),
        before=before,
        after=after,
        details=details,
        reason=text(data.get("reason") or data.get("note") or ""),
        via=where.via,
        request_id=where.request_id,
        address=where.address,
    )


def _others(entry: NewEvent, data: Any) -> list[Any]:
    """Further objects of an entry: those of the service, and the queue and policy of the object."""
    named = data if isinstance(data, list) else []
    return named + [
        {"type": noun, "id": str(pk), "name": ""}
        for noun, pk in (("queue", entry.queue_id), ("policy", entry.policy_id))
        if pk is not None and noun != entry.object_type
    ]


def _actor_name(actor_id: int | None, names: Mapping[int, str]) -> str:
    if actor_id is not None:
        return names.get(actor_id, f"user {actor_id}")
    where = origin()
    return where.account if where.via == COMMAND_LINE else UNKNOWN


def _names(ids: set[int]) -> dict[int, str]:
    """Names of accounts as they are now; deleted ones have none."""
    if not ids:
        return {}
    rows = get_user_model()._default_manager.filter(pk__in=ids)
    return {row.pk: text(row.get_username(), most=NAME_LENGTH) for row in rows}


def _mapping(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    return value if isinstance(value, dict) else {"value": value}


def _differences(
    before: dict[str, Any], after: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of a change, the fields that differ; of something made or removed, all of it."""
    if not before or not after:
        return before, after
    same = {key for key, value in before.items() if key in after and after[key] == value}
    return (
        {key: value for key, value in before.items() if key not in same},
        {key: value for key, value in after.items() if key not in same},
    )
