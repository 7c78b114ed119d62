"""Provisions the draft: it becomes live."""

from collections.abc import Iterable

from django.db import transaction

from apps.accounts.models import User
from apps.configuration.models import Revision
from apps.configuration.selectors import LIVE, draft_document, live_document
from apps.configuration.services.change_records import change_record
from apps.configuration.services.drafts import draft_version_check, queue_orders
from apps.configuration.services.queue_closure import queues_close, rules_remove
from apps.configuration.services.rows import document_write, live_lock
from apps.configuration.services.validation import document_check, document_errors_refuse
from apps.policies.document import Document, compare
from apps.policies.models import DraftState, LiveState, Policy, Pool, Queue


@transaction.atomic
def document_provision(
    *, actor: User | None, note: str = "", version: int | None = None
) -> Revision:
    """Write the draft onto the live rows by key, keeping ids, all or nothing.

    What the draft no longer holds gets `removed_at`; the queues of such a profile close exactly
    as if it were removed from each policy. Running work keeps what it was given.

    Raises:
        Conflict: the draft has errors; `fields` names them by path.
        Stale: the draft is at another version than `version`.
    """
    state = live_lock()
    draft = DraftState.objects.select_for_update().get(id=1)
    draft_version_check(version, current=draft.version)
    before, document = live_document(), draft_document()
    document_errors_refuse(document_check(document))
    _settings_write(state, document)
    written = document_write(LIVE, document)
    closing = Queue.objects.filter(profile__in=written.removed_profiles, removed_at__isnull=True)
    queues_close(queues=list(closing), actor=actor, reason="Its profile was removed.")
    rules_remove(Pool, written.removed_pools)
    _ranks_write(document)
    changes = [str(change) for change in compare(before, live_document())]
    revision = change_record(
        "configuration.provisioned",
        actor=actor,
        object_type="configuration",
        note=note,
        data={"note": note, "changes": changes},
        topics=_topics(),
    )
    draft.base_revision = revision.number
    draft.save(update_fields=["base_revision"])
    return revision


def _settings_write(state: LiveState, document: Document) -> None:
    for name in document.settings.__struct_fields__:
        setattr(state, name, getattr(document.settings, name))
    state.save()


def _ranks_write(document: Document) -> None:
    changed = []
    for queues in queue_orders(document).values():
        for rank, queue in enumerate(queues):
            if queue.queuing_rank != rank:
                queue.queuing_rank = rank
                changed.append(queue)
    Queue.objects.bulk_update(changed, ["queuing_rank"], batch_size=500)


def _topics() -> Iterable[str]:
    """Topics of the pages of pools, policies and queues, which show requests, names and orders."""
    for noun, model in (("pool", Pool), ("policy", Policy), ("queue", Queue)):
        rows = model._default_manager.filter(removed_at__isnull=True)
        yield from (f"{noun}.{pk}" for pk in rows.values_list("pk", flat=True))
