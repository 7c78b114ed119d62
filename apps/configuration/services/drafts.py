"""Saves and resets the draft."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.configuration.document_diff import before_and_after
from apps.configuration.selectors import (
    DRAFT,
    draft_document,
    draft_history,
    live_document,
)
from apps.configuration.services.rows import document_write, draft_lock
from apps.core.errors import BadInput, Stale
from apps.events.services import event_record
from apps.policies.document import Document, ProfileEntry, compare
from apps.policies.models import DraftQueueRank, DraftState, LiveState, Queue


@transaction.atomic
def draft_write(*, document: Document, actor: User | None, version: int | None = None) -> int:
    """The draft becomes this document; its `policies` are not read.

    Args:
        version: the version that the writer read; None if nobody could have read it.

    Returns:
        The new version.

    Raises:
        Stale: the draft is at another version; the sentence says who changed what.
        BadInput: a queue or policy is named that is not there.
    """
    state = draft_lock()
    draft_version_check(version, current=state.version - 1)
    before = draft_document()
    for name in document.settings.__struct_fields__:
        setattr(state, name, getattr(document.settings, name))
    written = document_write(DRAFT, document)
    _ranks_write(document, written.profiles)
    after = draft_document()
    changes = [str(change) for change in compare(before, after)]
    draft_save_record(state, actor=actor, changes=changes, diff=before_and_after(before, after))
    return state.version


@transaction.atomic
def draft_reset(*, actor: User | None, version: int | None = None) -> int:
    """Replace the draft with the live configuration. Returns the new version.

    Raises:
        Stale: the draft is at another version than `version`.
    """
    # Held before reading, so that nothing is provisioned or connected in between.
    LiveState.objects.select_for_update().get(id=1)
    return draft_write(document=live_document(), actor=actor, version=version)


def draft_version_check(version: int | None, *, current: int) -> None:
    """Refuse a writer who read another version.

    Raises:
        Stale: the sentence says who changed what since.
    """
    if version is not None and version != current:
        raise Stale(
            f"The draft is at version {current} now. {draft_history(version)}".strip(),
            fields={"If-Match": f'is another version, the current one is "{current}"'},
        )


def draft_save_record(
    state: DraftState,
    *,
    actor: User | None,
    changes: Iterable[str],
    diff: tuple[dict[str, Any], dict[str, Any]] = ({}, {}),
) -> None:
    """Record a save, for writers whose version is stale now; `diff` is before and after.

    `state` comes from `draft_lock`, so its version is counted up already.
    """
    state.saved_at = timezone.now()
    state.saved_by = actor
    state.save()
    event_record(
        "draft.saved",
        actor=actor,
        object_type="draft",
        object_id=1,
        data={
            "name": "Draft",
            "version": state.version,
            "changes": list(changes),
            "before": diff[0],
            "after": diff[1],
        },
        topics=["configuration"],
    )


def queue_orders(document: Document) -> dict[str, list[Queue]]:
    """Per profile name (lower case) its queues in the order of the document.

    Queues that the document leaves out come last, in their live order.

    Raises:
        BadInput: a name is no queue of that profile.
    """
    by_key: dict[str, list[Queue]] = {}
    live = Queue.objects.filter(removed_at__isnull=True).select_related("profile")
    for queue in live.order_by("queuing_rank", "id"):
        by_key.setdefault(str(queue.profile.key), []).append(queue)
    problems: dict[str, str] = {}
    orders = {}
    for index, profile in enumerate(document.profiles):
        queues = {queue.name: queue for queue in by_key.get(profile.key, [])}
        path = f"profiles[{index}].queues"
        problems |= _unknown_queues(profile, queues, path)
        first = [queues[name] for name in profile.queues if name in queues]
        rest = [queue for queue in queues.values() if queue not in first]
        orders[profile.name.lower()] = first + rest
    if problems:
        raise BadInput("; ".join(f"{k} {v}" for k, v in problems.items()) + ".", fields=problems)
    return orders


def _unknown_queues(
    profile: ProfileEntry, queues: Mapping[str, Queue], path: str
) -> dict[str, str]:
    return {
        f"{path}[{index}]": f"{name!r} is no queue of this profile"
        for index, name in enumerate(profile.queues)
        if name not in queues
    }


def _ranks_write(document: Document, profiles: Mapping[str, int]) -> None:
    # Read again: an entry without a key has one only now.
    keyed = draft_document()
    orders = {entry.name.lower(): entry.queues for entry in document.profiles}
    named = tuple(
        _with_queues(entry, orders.get(entry.name.lower(), ())) for entry in keyed.profiles
    )
    wanted = queue_orders(Document(profiles=named))
    DraftQueueRank.objects.all().delete()
    DraftQueueRank.objects.bulk_create(
        DraftQueueRank(profile_id=profiles[name], queue=queue, rank=rank)
        for name, queues in wanted.items()
        for rank, queue in enumerate(queues)
    )


def _with_queues(entry: ProfileEntry, queues: tuple[str, ...]) -> ProfileEntry:
    return ProfileEntry(key=entry.key, name=entry.name, queues=queues)
