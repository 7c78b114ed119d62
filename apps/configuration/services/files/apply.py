"""Applies a configuration file through the services that pages and REST use, all or nothing."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec
from django.db import transaction

from apps.accounts.models import User
from apps.configuration.document_diff import before_and_after
from apps.configuration.models import Revision
from apps.configuration.selectors import draft_document, last_author, last_revision, live_document
from apps.configuration.services.change_records import RevisionBatch, one_revision
from apps.configuration.services.drafts import draft_write
from apps.configuration.services.files.export import configuration_version
from apps.configuration.services.files.groups import groups_apply
from apps.configuration.services.files.places import in_file
from apps.configuration.services.files.policies import (
    new_policies_of_pools_create,
    policies_apply,
    policies_remove,
)
from apps.configuration.services.files.queues import orders_apply, queues_apply, queues_remove
from apps.configuration.services.files.rules import rules_apply
from apps.configuration.services.preview import Preview, change_preview
from apps.configuration.services.provision import document_provision
from apps.configuration.services.rows import live_wait
from apps.core.errors import Conflict, Stale
from apps.policies.document import (
    Document,
    DocumentChange,
    Merged,
    SourceText,
    compare,
    compare_queues,
    merge,
)
from apps.policies.models import Queue

MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Applied:
    """What a file changed; `revision` is the last one, a new one where the document changed.

    `version` is of everything that files can change, as it is now.
    """

    revision: int
    version: str
    changes: tuple[DocumentChange, ...]

    @property
    def is_changed(self) -> bool:
        return bool(self.changes)


@transaction.atomic
def configuration_apply(
    *,
    actor: User,
    source: SourceText,
    note: str = "",
    revision: int | None = None,
    version: str = "",
    prune: Iterable[str] = (),
    is_dry_run: bool = False,
) -> Applied:
    """Make the configuration as the file says, in one revision; a second time changes nothing.

    Args:
        revision: the last one that the writer knows; None: whatever it is.
        version: that of `configuration_diff`; empty: whatever it is.
        prune: kinds of which everything is removed that the file does not name.
        is_dry_run: all of it is done, and rolled back.

    Raises:
        BadInput: `fields` names the paths of the file, with lines.
        Conflict: the draft has changes that are not provisioned, or something is in use.
        Stale: there is a later revision, and the sentence says who changed what; or something
            that files can change is another by now.
    """
    # Other writers wait, and the version stays where nothing changes.
    live_wait()
    last = last_revision()
    _check_revision(revision, last)
    before_version = configuration_version(actor)
    _check_version(version, before_version)
    prune = frozenset(prune)
    before = live_document()
    with in_file(source, str):
        merged = merge(before, source.data, prune=prune)
    with in_file(source, merged.place), one_revision(note=note) as batch:
        more = _apply(actor, merged, before, batch, note, is_pruned="rules" in prune)
    after = live_document()
    changes = [
        one for one in compare(before, after) if (one.kind, one.field) != ("policies", "queues")
    ]
    changes += [*compare_queues(before, after), *more]
    if is_dry_run:
        transaction.set_rollback(True)
        return Applied(last, before_version, tuple(changes))
    if batch.revision is not None:
        last = batch.revision.number
    return Applied(last, configuration_version(actor), tuple(changes))


def configuration_diff(
    *, actor: User, source: SourceText, prune: Iterable[str] = ()
) -> tuple[Applied, Preview]:
    """What a file would change, and what that would do to tasks; nothing is kept.

    The revision and the version are those that it would be applied to.

    Raises:
        Everything that `configuration_apply` raises.
    """
    found: list[Applied] = []
    last, version = last_revision(), configuration_version(actor)

    def change() -> None:
        # In between nothing changed, or else what follows would be about another state.
        found.append(configuration_apply(actor=actor, source=source, prune=prune, version=version))

    preview = change_preview(change)
    return replace(found[0], revision=last, version=version), preview


def _apply(
    actor: User,
    merged: Merged,
    before: Document,
    batch: RevisionBatch,
    note: str,
    *,
    is_pruned: bool,
) -> list[DocumentChange]:
    """The steps, each after what it needs; returns the changes that no document has."""
    changes = groups_apply(actor, merged.parts.groups)
    queues_remove(actor, merged, batch)
    new_policies_of_pools_create(actor, merged, batch)
    _provision(actor, merged.document, before, batch, note)
    policies_apply(actor, merged, before, batch)
    policies_remove(actor, merged, batch)
    queues_apply(actor, merged, batch)
    orders_apply(actor, merged, batch)
    rules = merged.parts.rules
    changes += rules_apply(actor, rules, merged.removed.rules, is_pruned=is_pruned)
    return changes


def _provision(
    actor: User, wanted: Document, before: Document, batch: RevisionBatch, note: str
) -> None:
    """Pools, profiles, links and settings go by the draft, which is the live document afterwards.

    Orders of queues have a step of their own, when the queues are there.
    """
    orders = {profile.key: profile.queues for profile in before.profiles}
    profiles = tuple(
        msgspec.structs.replace(profile, queues=_still_there(orders.get(profile.key, ())))
        for profile in wanted.profiles
    )
    wanted = msgspec.structs.replace(wanted, profiles=profiles, policies=None)
    current = msgspec.structs.replace(live_document(), policies=None)
    if not compare(current, wanted):
        return
    _check_draft(current, wanted)
    draft_write(document=wanted, actor=actor)
    batch.facts = before_and_after(current, wanted)
    document_provision(actor=actor, note=note)


def _still_there(names: Iterable[str]) -> tuple[str, ...]:
    live = set(Queue.objects.filter(removed_at__isnull=True).values_list("name", flat=True))
    return tuple(name for name in names if name in live)


def _check_draft(current: Document, wanted: Document) -> None:
    """Refuse to overwrite a draft of another administrator, or to provision it unseen."""
    draft = draft_document()
    changes = compare(current, draft)
    if not changes or not compare(draft, wanted):
        return
    first = ", ".join(str(change) for change in changes[:MOST_NAMED])
    raise Conflict(
        f"The draft has changes that are not provisioned: {first}. {last_author() or 'The system'} "
        "saved it last. Provision or reset it, then apply again."
    )


def _check_version(known: str, now: str) -> None:
    if known and known != now:
        raise Stale(
            "Objects, groups or access rules changed since this version. Compare the file again.",
            fields={"version": f"is {known[:64]}, the configuration is at {now}"},
        )


def _check_revision(known: int | None, last: int) -> None:
    if known is None or known == last:
        return
    later = Revision.objects.filter(number__gt=known).select_related("author").defer("document")
    sentences = [
        f"{one.author or 'The system'}: {one.note or 'no note'} (revision {one.number})."
        for one in reversed(later.order_by("-number")[:MOST_NAMED])
    ]
    raise Stale(
        f"The configuration is at revision {last} now. {' '.join(sentences)}".strip(),
        fields={"revision": f"is {known}, the last one is {last}"},
    )
