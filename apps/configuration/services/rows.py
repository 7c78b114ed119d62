"""Writes a document onto the rows of one side, live or draft, keeping keys and ids.

Both sides are changed only while their one-row state is locked, so that writers wait for each
other: the live state always before the draft state.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from django.db.models import F, Model
from django.utils import timezone

from apps.configuration.selectors import ConfigurationModels
from apps.core.errors import BadInput
from apps.policies.document import (
    POOL_COLUMNS,
    PROFILE_COLUMNS,
    Document,
    PoolEntry,
    ProfileEntry,
)
from apps.policies.models import DraftState, LiveState, Policy
from apps.policies.services import live_version_raise

Entry = TypeVar("Entry", PoolEntry, ProfileEntry)


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Ids by lower-case name after writing, and the ids of removed rows."""

    pools: Mapping[str, int] = field(default_factory=dict)
    profiles: Mapping[str, int] = field(default_factory=dict)
    removed_pools: tuple[int, ...] = ()
    removed_profiles: tuple[int, ...] = ()


def live_lock() -> LiveState:
    """Wait for other writers of the live side, and count its version up."""
    live_version_raise()
    return LiveState.objects.get(id=1)


def live_wait() -> None:
    """Wait for other writers of the live side, and keep them waiting; its version stays."""
    list(LiveState.objects.select_for_update(no_key=True).filter(id=1))


def draft_lock() -> DraftState:
    """Wait for other writers of the draft, and count its version up."""
    DraftState.objects.filter(id=1).update(version=F("version") + 1)
    return DraftState.objects.get(id=1)


def draft_wait() -> None:
    """Wait for other writers of the draft, and keep them waiting; its version stays."""
    list(DraftState.objects.select_for_update(no_key=True).filter(id=1))


def document_write(models: ConfigurationModels, document: Document) -> WriteResult:
    """Write pools, profiles and links of one side as in the document.

    Entries are joined by key; one without a key by name, else it is new. Rows that are not in the
    document are deleted from a draft, and get `removed_at` on the live side.

    Raises:
        BadInput: `dedicated_to` names no policy.
    """
    policies = _policies_by_name(document)
    document = document_with_keys(models, document)
    pools, removed_pools = _entries_write(
        models.pools,
        document.pools,
        {
            entry.name: _values(entry, POOL_COLUMNS)
            | {"dedicated_to_id": policies.get((entry.dedicated_to or "").lower())}
            for entry in document.pools
        },
    )
    profiles, removed_profiles = _entries_write(
        models.profiles,
        document.profiles,
        {entry.name: _values(entry, PROFILE_COLUMNS) for entry in document.profiles},
    )
    _links_write(models, document, pools, profiles)
    return WriteResult(pools, profiles, removed_pools, removed_profiles)


def document_with_keys(models: ConfigurationModels, document: Document) -> Document:
    """The document with a key in every entry.

    An entry without one takes the key of the row of its name, unless another entry has that key;
    else it is new. Without such entries, this makes no query.
    """
    return msgspec.structs.replace(
        document,
        pools=_with_keys(models.pools, document.pools),
        profiles=_with_keys(models.profiles, document.profiles),
    )


def _with_keys(model: type[Any], entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    if all(entry.key for entry in entries):
        return entries
    claimed = {uuid.UUID(entry.key) for entry in entries if entry.key}
    rows = model._default_manager.all()
    by_name = {row.name.lower(): row.key for row in rows if not _is_removed(row)}

    def key_of(entry: Entry) -> uuid.UUID:
        named: uuid.UUID | None = by_name.get(entry.name.lower())
        return uuid.uuid4() if named is None or named in claimed else named

    return tuple(
        entry if entry.key else msgspec.structs.replace(entry, key=str(key_of(entry)))
        for entry in entries
    )


def _values(entry: PoolEntry | ProfileEntry, names: Iterable[str]) -> dict[str, Any]:
    values = {name: getattr(entry, name) for name in names}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def _policies_by_name(document: Document) -> dict[str, int]:
    known = {
        name.lower(): pk
        for pk, name in Policy.objects.filter(removed_at__isnull=True).values_list("pk", "name")
    }
    problems = {
        f"pools[{index}].dedicated_to": f"there is no policy {pool.dedicated_to!r}"
        for index, pool in enumerate(document.pools)
        if pool.dedicated_to and pool.dedicated_to.lower() not in known
    }
    if problems:
        raise BadInput("; ".join(f"{k}: {v}" for k, v in problems.items()), fields=problems)
    return known


def _entries_write(
    model: type[Any],
    entries: Iterable[PoolEntry | ProfileEntry],
    values: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, int], tuple[int, ...]]:
    """Write rows of one kind; returns ids by lower-case name, and the ids of removed ones."""
    rows = {row.key: row for row in model._default_manager.all()}
    wanted = {uuid.UUID(entry.key): entry for entry in entries}
    removed = _remove_missing(model, rows, set(wanted))
    _free_names(model, rows, wanted)
    ids = {}
    for position, (key, entry) in enumerate(wanted.items()):
        row = rows.get(key) or model(key=key)
        changes = {**values[entry.name], "position": position}
        if hasattr(row, "removed_at"):
            changes["removed_at"] = None
        if row.pk is None or any(getattr(row, name) != value for name, value in changes.items()):
            for name, value in changes.items():
                setattr(row, name, value)
            row.full_clean(validate_unique=False, validate_constraints=False)
            row.save()
        ids[entry.name.lower()] = row.pk
    return ids, removed


def _remove_missing(
    model: type[Any], rows: Mapping[uuid.UUID, Any], wanted: set[uuid.UUID]
) -> tuple[int, ...]:
    gone = tuple(r.pk for key, r in rows.items() if key not in wanted and not _is_removed(r))
    missing = model._default_manager.filter(pk__in=gone)
    if hasattr(model, "removed_at"):
        missing.update(removed_at=timezone.now())
    else:
        missing.delete()
    return gone


def _free_names(
    model: type[Any],
    rows: Mapping[uuid.UUID, Any],
    wanted: Mapping[uuid.UUID, PoolEntry | ProfileEntry],
) -> None:
    """Names may be exchanged: rows that get another name release the old one first."""
    for key, entry in wanted.items():
        row = rows.get(key)
        if row is not None and not _is_removed(row) and row.name.lower() != entry.name.lower():
            model._default_manager.filter(pk=row.pk).update(name=f"~{key}")


def _is_removed(row: Model) -> bool:
    return getattr(row, "removed_at", None) is not None


def _links_write(
    models: ConfigurationModels,
    document: Document,
    pools: Mapping[str, int],
    profiles: Mapping[str, int],
) -> None:
    positions = {
        (pools[pool.name.lower()], profiles[name.lower()]): position
        for pool in document.pools
        for position, name in enumerate(pool.profiles)
    }
    manager = models.links._default_manager
    existing: dict[tuple[int, int], Any] = {(k.pool_id, k.profile_id): k for k in manager.all()}
    for profile in document.profiles:
        for rank, link in enumerate(profile.pools):
            pair = (pools[link.pool.lower()], profiles[profile.name.lower()])
            row = existing.pop(pair, None) or models.links(pool_id=pair[0], profile_id=pair[1])
            values = {"name": link.name, "routing_rank": rank, "execution_rank": positions[pair]}
            if row.pk is None or any(getattr(row, k) != v for k, v in values.items()):
                for name, value in values.items():
                    setattr(row, name, value)
                row.save()
    manager.filter(pk__in=[row.pk for row in existing.values()]).delete()
