"""Leaving a trace, for apps that stand below the log.

`events` keeps the log and stands above `accounts`, whose services have to leave traces too. So it
says here what a trace becomes, when Django starts; everybody else may call its own
`apps.events.services.event_record`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from django.db.models import Model


class Recorder(Protocol):
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


_recorders: list[Recorder] = []


def recorder_set(recorder: Recorder) -> None:
    """Say who keeps what is recorded; the one that was there before does no more."""
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
