"""What every change of configuration, policies and queues leaves behind."""

from collections.abc import Iterable, Mapping
from typing import Any

from apps.accounts.models import User
from apps.configuration.models import Revision
from apps.configuration.selectors import live_document, revision_document
from apps.configuration.sides import sides
from apps.core.doorbell import after_commit
from apps.events.services import event_record
from apps.policies.document import Document, as_data

WORK = "allocation.run_pass"


def revision_add(*, actor: User | None, note: str) -> Revision:
    """Store the live document under the next number; the live side is locked by the caller."""
    return _revision_add(actor=actor, note=note, last=_last(), document=live_document())


def _last() -> Revision | None:
    return Revision.objects.order_by("-number").first()


def _revision_add(
    *, actor: User | None, note: str, last: Revision | None, document: Document
) -> Revision:
    number = last.number + 1 if last is not None else 1
    return Revision.objects.create(
        number=number, document=as_data(document), author=actor, note=note
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
    """Revision, event, audit entry, and the doorbell for the pass and the pages.

    What was before and is after follows from the document; what does not stand in it, such as a
    pause, is in `data`.
    """
    last, document = _last(), live_document()
    revision = _revision_add(actor=actor, note=note, last=last, document=document)
    told = dict(data or {})
    earlier = revision_document(last) if last is not None else Document()
    before, after = sides(earlier, document, own=f"{object_type} {told.get('name', '')}")
    event_record(
        kind,
        actor=actor,
        object_type=object_type,
        object_id=object_id,
        policy_id=policy_id,
        queue_id=queue_id,
        data={
            "note": note,
            **told,
            "revision": revision.number,
            "before": {**before, **told.get("before", {})},
            "after": {**after, **told.get("after", {})},
        },
    )
    live_changed(topics=topics)
    return revision


def live_changed(*, topics: Iterable[str] = ()) -> None:
    """Something that the pass reads is different now."""
    after_commit(tasks=[WORK], topics=["configuration", "overview", *topics])
