"""Records of changes of configuration, policies and queues."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from apps.accounts.models import User
from apps.configuration.document_diff import before_and_after
from apps.configuration.models import Revision
from apps.configuration.selectors import live_document, revision_document
from apps.core.notifications import NOTIFY_ALLOCATION, after_commit
from apps.events.services import event_record
from apps.policies.document import Document, as_data

# Of a revision.
NOTE_CHARS = 1000
Facts = tuple[Mapping[str, Any], Mapping[str, Any]]


@dataclass(slots=True)
class RevisionBatch:
    """One revision for many changes. `facts` are before and after of the next change.

    The document of hundreds of changes is read once, at the end.
    """

    note: str
    revision: Revision | None = None
    facts: Facts = field(default_factory=lambda: ({}, {}))


_batch: ContextVar[RevisionBatch | None] = ContextVar("revision_batch", default=None)


@contextmanager
def one_revision(*, note: str) -> Iterator[RevisionBatch]:
    """Changes within make one revision, or none where there are none.

    The live side is locked by the caller, and a failure rolls back everything.
    """
    batch = RevisionBatch(note=note[:NOTE_CHARS])
    token = _batch.set(batch)
    try:
        yield batch
    finally:
        _batch.reset(token)
    if batch.revision is not None:
        batch.revision.document = as_data(live_document())
        batch.revision.save(update_fields=["document"])


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
    object_id: object = None,
    note: str,
    policy_id: int | None = None,
    queue_id: int | None = None,
    data: Mapping[str, Any] | None = None,
    topics: Iterable[str] = (),
) -> Revision:
    """Record a change: revision, event, audit entry, and the notification of the pass and pages.

    Values before and after follow from the document; others, such as those of a pause, are in
    `data`.

    Args:
        object_id: of the changed object; None: the new revision itself.
    """
    details = dict(data or {})
    own = f"{object_type} {details.get('name', '')}"
    batch = _batch.get()
    if batch is None:
        revision, (before, after) = _single_revision(actor, note, own)
    else:
        revision, (before, after) = _batch_revision(batch, actor)
    event_record(
        kind,
        actor=actor,
        object_type=object_type,
        object_id=revision.number if object_id is None else object_id,
        policy_id=policy_id,
        queue_id=queue_id,
        data={
            "note": note,
            **details,
            "revision": revision.number,
            "before": {**before, **details.get("before", {})},
            "after": {**after, **details.get("after", {})},
        },
    )
    live_change_notify(topics=topics)
    return revision


def _single_revision(actor: User | None, note: str, own: str) -> tuple[Revision, Facts]:
    last, document = _last(), live_document()
    revision = _revision_add(actor=actor, note=note, last=last, document=document)
    earlier = revision_document(last) if last is not None else Document()
    return revision, before_and_after(earlier, document, own=own)


def _batch_revision(batch: RevisionBatch, actor: User | None) -> tuple[Revision, Facts]:
    if batch.revision is None:
        batch.revision = revision_add(actor=actor, note=batch.note)
    facts, batch.facts = batch.facts, ({}, {})
    return batch.revision, facts


def live_change_notify(*, topics: Iterable[str] = ()) -> None:
    """Notify that something which the pass reads has changed."""
    after_commit(notify=[NOTIFY_ALLOCATION], topics=["configuration", "overview", *topics])
