"""Adding to the log, and telling browsers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import AbstractBaseUser

from apps.core.doorbell import after_commit
from apps.events.models import Event


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened, before it is stored."""

    kind: str
    object_type: str
    object_id: object
    queue_id: int | None = None
    policy_id: int | None = None
    actor_id: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


def events_record(entries: Iterable[Entry], *, topics: Iterable[str] = ()) -> None:
    """Store the entries with the transaction that is open, and announce `topics` on commit."""
    Event.objects.bulk_create(
        [
            Event(
                kind=entry.kind,
                object_type=entry.object_type,
                object_id=str(entry.object_id),
                queue_id=entry.queue_id,
                policy_id=entry.policy_id,
                actor_id=entry.actor_id,
                data=dict(entry.data),
            )
            for entry in entries
        ]
    )
    after_commit(topics=topics)


def event_record(
    kind: str,
    *,
    actor: AbstractBaseUser | None,
    object_type: str,
    object_id: object,
    queue_id: int | None = None,
    policy_id: int | None = None,
    data: Mapping[str, Any] | None = None,
    topics: Iterable[str] = (),
) -> None:
    """Store one entry; `actor` None means the system itself."""
    entry = Entry(
        kind=kind,
        object_type=object_type,
        object_id=object_id,
        queue_id=queue_id,
        policy_id=policy_id,
        actor_id=actor.pk if actor is not None else None,
        data=data or {},
    )
    events_record([entry], topics=topics)
