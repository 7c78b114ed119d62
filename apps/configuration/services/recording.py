"""What every change of configuration, policies and queues leaves behind."""

from collections.abc import Iterable, Mapping
from typing import Any

from apps.accounts.models import User
from apps.configuration.models import Revision
from apps.configuration.selectors import live_document
from apps.core.doorbell import after_commit
from apps.events.services import Entry, events_record
from apps.policies.document import as_data

WORK = "allocation.run_pass"


def revision_add(*, actor: User | None, note: str) -> Revision:
    """Store the live document under the next number; the live side is locked by the caller."""
    last = Revision.objects.order_by("-number").values_list("number", flat=True).first()
    return Revision.objects.create(
        number=(last or 0) + 1, document=as_data(live_document()), author=actor, note=note
    )


def change_record(
    kind: str,
    *,
    actor: User | None,
    object_type: str,
    object_id: object,
    note: str,
    policy_id: int | None = None,
    queue_id: int | None = None,
    data: Mapping[str, Any] | None = None,
    topics: Iterable[str] = (),
) -> Revision:
    """Revision, event, and the doorbell for the pass and the pages."""
    revision = revision_add(actor=actor, note=note)
    entry = Entry(
        kind=kind,
        object_type=object_type,
        object_id=object_id,
        policy_id=policy_id,
        queue_id=queue_id,
        actor_id=actor.pk if actor is not None else None,
        data={**(data or {}), "revision": revision.number},
    )
    events_record([entry])
    live_changed(topics=topics)
    return revision


def live_changed(*, topics: Iterable[str] = ()) -> None:
    """Something that the pass reads is different now."""
    after_commit(tasks=[WORK], topics=["configuration", "overview", *topics])
