"""Recording events, for apps that may not import `events`.

`events` imports `accounts`, whose services record events too. So `events` registers its recorder
here when Django starts; all other apps may call `apps.events.services.event_record`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from django.db.models import Model


class EventRecorder(Protocol):
    """Keeps one event, and its audit entry, with the transaction that is open."""

    def __call__(
        self,
        kind: str,
        *,
        actor: Model | None,
        object_type: str,
        object_id: object,
        queue_id: int | None = None,
        policy_id: int | None = None,
        data: Mapping[str, Any] | None = None,
        topics: Iterable[str] = (),
    ) -> None: ...


_recorders: list[EventRecorder] = []


def recorder_register(recorder: EventRecorder) -> None:
    """Register the recorder, in place of an earlier one."""
    _recorders[:] = [recorder]


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
    """Store one event, as `apps.events.services.event_record` does.

    Args:
        data: `name` of the object, `reason`, and what was `before` and is `after`; no secrets.
    """
    for recorder in _recorders:
        recorder(
            kind,
            actor=actor,
            object_type=object_type,
            object_id=object_id,
            queue_id=queue_id,
            policy_id=policy_id,
            data=data,
            topics=topics,
        )
