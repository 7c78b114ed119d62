"""Adds to the log, and notifies browsers."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from django.db.models import Model

from apps.core.notifications import after_commit
from apps.core.origin import COMMAND_LINE, acted_by, origin
from apps.core.statements import row_insert
from apps.events.models import Event
from apps.events.sanitize import sanitize
from apps.events.services.audit import audit_add
from apps.events.services.entries import NewEvent

# Keys that only the audit log keeps.
OF_AUDIT = frozenset({"before", "after", "others"})


def events_record(entries: Iterable[NewEvent], *, topics: Iterable[str] = ()) -> None:
    """Store the entries with the transaction that is open, and announce `topics` on commit.

    Whatever a service account does for an owner is audited.
    """
    kept = [_with_acting_account(entry) for entry in entries]
    rows = [
        Event(
            kind=entry.kind,
            object_type=entry.object_type,
            object_id=str(entry.object_id),
            queue_id=entry.queue_id,
            policy_id=entry.policy_id,
            actor_id=entry.actor_id,
            acted_by_id=entry.acted_by_id,
            data=_of_event(entry),
        )
        for entry in kept
    ]
    if len(rows) == 1:
        row_insert(rows[0])
    else:
        Event.objects.bulk_create(rows)
    audit_add([entry for entry in kept if entry.is_audited or entry.acted_by_id is not None])
    after_commit(topics=topics)


def event_record(
    kind: str,
    *,
    actor: Model | None,
    object_type: str,
    object_id: object,
    queue_id: int | None = None,
    policy_id: int | None = None,
    data: Mapping[str, Any] | None = None,
    topics: Iterable[str] = (),
) -> None:
    """Store one entry; `actor` None means the system itself, or a caller of `manage.py`.

    What a user did is in the audit log, too.

    Args:
        data: see `NewEvent`.
    """
    entry = NewEvent(
        kind=kind,
        object_type=object_type,
        object_id=object_id,
        queue_id=queue_id,
        policy_id=policy_id,
        actor_id=actor.pk if actor is not None else None,
        data=sanitize(data or {}),
        acted_by_id=getattr(actor, "acted_by_id", None),
        is_audited=actor is not None or origin().via == COMMAND_LINE,
    )
    events_record([entry], topics=topics)


def _of_event(entry: NewEvent) -> dict[str, Any]:
    """The data of the event. `before` and `after` are in the audit log, for administrators only."""
    return {key: value for key, value in entry.data.items() if key not in OF_AUDIT}


def _with_acting_account(entry: NewEvent) -> NewEvent:
    service = entry.acted_by_id or acted_by(entry.actor_id)
    return entry if service == entry.acted_by_id else replace(entry, acted_by_id=service)
