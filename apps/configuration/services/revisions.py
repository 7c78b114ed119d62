"""Restores a revision into the draft."""

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
    """The document without policies and queues removed since, others by their current names.

    Names may be reused: a policy is identified by its id, a queue by its policy and its profile.
    """
    notes: list[str] = []
    policies = _Policies(document)

    def pool(entry: PoolEntry) -> PoolEntry:
        now = policies.name_now(entry.dedicated_to or "")
        if entry.dedicated_to and now is None:
            notes.append(
                f"Pool {entry.name!r} was dedicated to {entry.dedicated_to!r}, which is gone: "
                "it is open to all now."
            )
        return msgspec.structs.replace(entry, dedicated_to=now)

    def profile(entry: ProfileEntry) -> ProfileEntry:
        now = {name: policies.queue_now(name, entry.key) for name in entry.queues}
        gone = [name for name, queue in now.items() if queue is None]
        if gone:
            notes.append(f"Profile {entry.name!r} had the queues {', '.join(gone)}, now gone.")
        return msgspec.structs.replace(entry, queues=tuple(filter(None, now.values())))

    return (
        msgspec.structs.replace(
            document,
            pools=tuple(map(pool, document.pools)),
            profiles=tuple(map(profile, document.profiles)),
            policies=None,
        ),
        notes,
    )


class _Policies:
    """The policies of a document, and the current names of them and their queues."""

    def __init__(self, document: Document) -> None:
        entries = document.policies or ()
        self._ids = {entry.name.lower(): entry.id for entry in entries}
        self._owners = {queue.name: entry.id for entry in entries for queue in entry.queues}
        live = Policy.objects.filter(removed_at__isnull=True)
        self._names = dict(live.values_list("pk", "name"))
        queues = Queue.objects.filter(removed_at__isnull=True)
        rows = queues.values_list("policy_id", "profile__key", "name")
        self._queues = {(policy, str(profile)): name for policy, profile, name in rows}

    def name_now(self, name: str) -> str | None:
        return self._names.get(self._ids.get(name.lower(), 0))

    def queue_now(self, name: str, profile: str) -> str | None:
        return self._queues.get((self._owners.get(name, 0), profile))
