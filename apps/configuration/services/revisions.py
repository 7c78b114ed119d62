"""Restoring a revision into the draft."""

import msgspec
from django.db import transaction

from apps.accounts.models import User
from apps.configuration.models import Revision
from apps.configuration.selectors import revision_document
from apps.configuration.services.drafts import draft_write
from apps.policies.document import Document, PoolEntry, ProfileEntry
from apps.policies.models import Policy, Queue


@transaction.atomic
def revision_restore(
    *, revision: Revision, actor: User | None, version: int | None = None
) -> tuple[int, list[str]]:
    """The draft becomes the document of a revision. Policies are not touched.

    Returns:
        The new version of the draft, and a sentence for everything that could not come back
        because it is no longer there.

    Raises:
        Stale: the draft is at another version than `version`.
    """
    document, notes = _with_what_is_there(revision_document(revision))
    return draft_write(document=document, actor=actor, version=version), notes


def _with_what_is_there(document: Document) -> tuple[Document, list[str]]:
    """Without policies and queues that were removed since."""
    notes: list[str] = []
    live = Policy.objects.filter(removed_at__isnull=True)
    policies = {name.lower() for name in live.values_list("name", flat=True)}
    queues: dict[str, set[str]] = {}
    connected = Queue.objects.filter(removed_at__isnull=True)
    for key, name in connected.values_list("profile__key", "name"):
        queues.setdefault(str(key), set()).add(name)

    def pool(entry: PoolEntry) -> PoolEntry:
        if entry.dedicated_to is None or entry.dedicated_to.lower() in policies:
            return entry
        notes.append(
            f"Pool {entry.name!r} was dedicated to {entry.dedicated_to!r}, which is gone: "
            "it is open to all now."
        )
        return msgspec.structs.replace(entry, dedicated_to=None)

    def profile(entry: ProfileEntry) -> ProfileEntry:
        there = queues.get(entry.key, set())
        gone = [name for name in entry.queues if name not in there]
        if gone:
            notes.append(f"Profile {entry.name!r} had the queues {', '.join(gone)}, now gone.")
        kept = tuple(name for name in entry.queues if name in there)
        return msgspec.structs.replace(entry, queues=kept)

    return (
        msgspec.structs.replace(
            document,
            pools=tuple(map(pool, document.pools)),
            profiles=tuple(map(profile, document.profiles)),
            policies=None,
        ),
        notes,
    )
