"""Policies of a configuration file."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from apps.accounts.models import User
from apps.configuration.services.change_records import RevisionBatch
from apps.configuration.services.files.groups import group_named
from apps.configuration.services.files.places import at
from apps.configuration.services.policies import policy_change, policy_create, policy_remove
from apps.core.errors import BadInput
from apps.core.suggestions import did_you_mean
from apps.policies.document import Document, Merged, PolicyEntry
from apps.policies.models import Policy

AMOUNTS = frozenset({"reserved", "limit", "user_limit"})
_FIELDS = tuple(name for name in PolicyEntry.__struct_fields__ if name not in {"id", "queues"})
Place = tuple[str, PolicyEntry]


def new_policies_of_pools_create(actor: User, merged: Merged, batch: RevisionBatch) -> None:
    """Create the new policies, without amounts, if the file dedicates a pool to one of them.

    Pools come after their policy, and amounts after the pools that list their keys.
    """
    owners = {pool.dedicated_to.lower() for pool in merged.document.pools if pool.dedicated_to}
    new = [(path, entry) for path, entry in _of_file(merged) if not entry.id]
    if not any(entry.name.lower() in owners for _, entry in new):
        return
    for path, entry in _parents_first(new):
        if _policy(entry.name) is None:
            with at(path):
                _create(actor, entry, batch, without=AMOUNTS)


def policies_apply(actor: User, merged: Merged, before: Document, batch: RevisionBatch) -> None:
    """Create and change policies, parents first."""
    known = {entry.id: entry for entry in before.policies or ()}
    for path, entry in _parents_first(_of_file(merged)):
        with at(path):
            row = _policy(entry.name) if not entry.id else Policy.objects.get(pk=entry.id)
            if row is None:
                _create(actor, entry, batch)
                continue
            old = known.get(row.pk)
            changed = _changes(entry, old)
            if old is None:
                # Created above: only what was left out then.
                changed = {name: value for name, value in changed.items() if name in AMOUNTS}
            if not changed:
                continue
            facts = [
                {name: getattr(one, name) for name in changed} if one is not None else {}
                for one in (old, entry)
            ]
            batch.facts = facts[0], facts[1]
            policy_change(actor=actor, policy=row, changes=changed)


def policies_remove(actor: User, merged: Merged, batch: RevisionBatch) -> None:
    """Remove policies, those below others first."""
    wanted = {name.lower(): index for index, name in enumerate(merged.removed.policies)}
    rows = [one for one in _live() if one.name.lower() in wanted]
    parents = {one.pk: one.parent_id for one in rows}
    for row in sorted(rows, key=lambda one: -_depth(one.pk, parents)):
        with at(f"remove.policies[{wanted[row.name.lower()]}]"):
            batch.facts = {"group": row.group.name}, {}
            policy_remove(actor=actor, policy=row)


def policy_named(name: str, *, field: str) -> Policy:
    """The live policy of this name.

    Raises:
        BadInput: there is none; with a suggestion.
    """
    row = _policy(name)
    if row is None:
        hint = did_you_mean(name, [one.name for one in _live()])
        problem = f"there is no policy {name!r}{hint}"
        raise BadInput(f"{field}: {problem}.", fields={field: problem})
    return row


def _live() -> Iterable[Policy]:
    return Policy.objects.filter(removed_at__isnull=True).select_related("group").order_by("pk")


def _policy(name: str) -> Policy | None:
    return Policy.objects.filter(removed_at__isnull=True, name__iexact=name.strip()).first()


def _of_file(merged: Merged) -> list[Place]:
    """The policies that the file names, with their paths in the document."""
    entries = enumerate(merged.document.policies or ())
    named = merged.named["policies"]
    return [(f"policies[{at}]", one) for at, one in entries if one.name.strip().lower() in named]


def _parents_first(entries: Iterable[Place]) -> Iterator[Place]:
    """Each after its parent; those in a circle last, where the service refuses them."""
    left = list(entries)
    while left:
        names = {entry.name.strip().lower() for _, entry in left}
        ready = [one for one in left if (one[1].parent or "").strip().lower() not in names]
        yield from ready or left
        left = [one for one in left if one not in ready] if ready else []


def _depth(pk: int, parents: Mapping[int, int | None]) -> int:
    depth, above = 0, parents.get(pk)
    while above is not None:
        depth, above = depth + 1, parents.get(above)
    return depth


def _changes(entry: PolicyEntry, old: PolicyEntry | None) -> dict[str, Any]:
    """What differs, as the service takes it."""
    names = [n for n in _FIELDS if old is None or getattr(entry, n) != getattr(old, n)]
    values = {name: _value(entry, name) for name in names}
    if old is not None and "budget" in values and values["budget"] == _value(old, "budget"):
        del values["budget"]
    return values


def _create(
    actor: User, entry: PolicyEntry, batch: RevisionBatch, *, without: frozenset[str] = frozenset()
) -> None:
    batch.facts = {}, {"group": entry.group, "parent": entry.parent}
    values = {name: _value(entry, name) for name in _FIELDS if name not in without}
    policy_create(actor=actor, **values)


def _value(entry: PolicyEntry, name: str) -> Any:
    value = getattr(entry, name)
    if name == "group":
        return group_named(value)
    if name == "parent":
        return policy_named(value, field="parent") if value else None
    if name == "budget" and value is not None:
        try:
            return Decimal(value)
        except InvalidOperation as error:
            problem = "must be an amount such as 1000 or 99.50"
            raise BadInput(f"budget {problem}.", fields={"budget": problem}) from error
    return value
