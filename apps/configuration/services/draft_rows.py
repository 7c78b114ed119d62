"""Saving single rows of the draft, as the forms of the admin site edit them."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from django.db import transaction
from django.db.models import Max, Model

from apps.accounts.models import User
from apps.configuration.document_diff import before_and_after
from apps.configuration.selectors import draft_document
from apps.configuration.services.drafts import draft_save_record
from apps.configuration.services.rows import draft_lock
from apps.policies.document import as_data, compare, parse
from apps.policies.models import DraftPool, DraftPoolLink, DraftProfile, DraftQueueRank

Row = DraftPool | DraftProfile | DraftPoolLink | DraftQueueRank


@transaction.atomic
def draft_rows_save(
    *,
    actor: User | None,
    rows: Sequence[Row] = (),
    removed: Iterable[Row] = (),
    settings: Mapping[str, Any] | None = None,
) -> int:
    """Save and delete rows; new ones, and links whose rank is None, come last.

    Args:
        rows: parents before the links that belong to them.
        settings: of the whole configuration, by their names.

    Returns:
        The new version of the draft.

    Raises:
        BadInput: the draft would not be a valid document; `fields` names the paths.
    """
    state = draft_lock()
    before = draft_document()
    for name, value in (settings or {}).items():
        setattr(state, name, value)
    state.save()
    for row in removed:
        row.delete()
    for row in rows:
        _place_last(row)
        row.save()
    _close_gaps(DraftPoolLink, "profile_id", "routing_rank")
    _close_gaps(DraftPoolLink, "pool_id", "execution_rank")
    _close_gaps(DraftQueueRank, "profile_id", "rank")
    after = draft_document()
    # The same checks as for a document that is sent as a whole.
    parse(as_data(after))
    changes = [str(change) for change in compare(before, after)]
    draft_save_record(state, actor=actor, changes=changes, diff=before_and_after(before, after))
    return state.version


def _place_last(row: Row) -> None:
    if isinstance(row, DraftPool | DraftProfile):
        if row._state.adding:
            row.position = _after(type(row), "position")
        return
    if isinstance(row, DraftPoolLink):
        row.name = row.name or row.pool.name
    ranks = ("rank",) if isinstance(row, DraftQueueRank) else ("routing_rank", "execution_rank")
    for column in ranks:
        # A form leaves it open, though no stored row does.
        if getattr(row, column) is None:
            setattr(row, column, _after(type(row), column))


def _after(model: type[Model], column: str) -> int:
    last: int | None = model._default_manager.aggregate(last=Max(column))["last"]
    return 0 if last is None else last + 1


def _close_gaps(model: type[Model], of: str, column: str) -> None:
    """Count ranks from 0 again; equal ones keep the order in which they were made."""
    rows = model._default_manager.order_by(of, column, "pk")
    changed = []
    for _, group in groupby(rows, key=attrgetter(of)):
        for rank, row in enumerate(group):
            if getattr(row, column) != rank:
                setattr(row, column, rank)
                changed.append(row)
    model._default_manager.bulk_update(changed, [column])
