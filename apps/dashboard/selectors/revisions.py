"""Revisions with what changed in each, and changes in words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.accounts.models import User
from apps.configuration.models import Revision
from apps.configuration.selectors import revision_document, revisions_visible_to
from apps.core.units import amounts_text
from apps.policies.document import DocumentChange, compare

PER_PAGE = 20
NONE = "–"
_AMOUNTS = frozenset(
    {"capacity", "request", "request_min", "request_max", "reserved", "limit", "user_limit"}
)
_KINDS = {"pools": "pool", "profiles": "profile", "policies": "policy"}


@dataclass(frozen=True, slots=True)
class ChangeView:
    """One difference in words; `kind` is empty for a setting of the whole configuration."""

    kind: str
    name: str
    what: str
    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class RevisionRow:
    """`changes` are the differences to the revision before; None where that is not kept."""

    revision: Revision
    changes: tuple[ChangeView, ...] | None


@dataclass(frozen=True, slots=True)
class RevisionPage:
    """The newest first; `older` is the number to continue before, None at the end."""

    rows: tuple[RevisionRow, ...]
    older: int | None


def revision_page(user: User, *, before: int | None) -> RevisionPage:
    """Revisions below the number `before`, a page of them, each compared to its predecessor."""
    visible = revisions_visible_to(user).select_related("author").order_by("-number")
    if before is not None:
        visible = visible.filter(number__lt=before)
    # One more than is shown: the last one is compared to it.
    found = list(visible[: PER_PAGE + 1])
    documents = [revision_document(one) for one in found]
    shown = found[:PER_PAGE]
    return RevisionPage(
        rows=tuple(
            RevisionRow(
                revision=one,
                changes=change_views(compare(documents[index + 1], documents[index]))
                # Across a gap, changes of others would be shown as this author's.
                if index + 1 < len(found) and found[index + 1].number == one.number - 1
                else None,
            )
            for index, one in enumerate(shown)
        ),
        older=shown[-1].number if len(found) > PER_PAGE else None,
    )


def change_views(changes: list[DocumentChange]) -> tuple[ChangeView, ...]:
    """In words and amounts, in the order of the document."""
    return tuple(
        ChangeView(
            kind=_KINDS.get(one.kind, ""),
            name=one.name,
            what=one.what,
            field=one.field.replace("_", " "),
            before=_text(one.field, one.before),
            after=_text(one.field, one.after),
        )
        for one in changes
    )


def _text(field: str, value: Any) -> str:
    if value in (None, "", [], {}, ()):
        return NONE
    if field in _AMOUNTS and isinstance(value, Mapping):
        return amounts_text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text('', one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_entry(one) for one in value)
    return str(value)


def _entry(value: Any) -> str:
    """A link as `H100 (first link)`, a queue of a policy by its name, anything else as it is."""
    if not isinstance(value, Mapping):
        return str(value)
    pool, name = value.get("pool"), value.get("name", "")
    if pool is None:
        return str(name)
    return f"{pool} ({name})" if name and name != pool else str(pool)
