"""Digest of what an admin form showed, so that it never overwrites another user's change."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from unfold.forms import PaginationInlineFormSet


class UncheckedFormSet(PaginationInlineFormSet):
    """Rows that are only shown: they may change while the form is open."""


def form_digest(form: Any, formsets: Iterable[Any]) -> str:
    """A digest of what is stored now in the fields of a form and of its inlines.

    Sent values do not count: a form that was sent begins with what is stored, too.
    """
    inlines = [_rows(one) for one in formsets if not isinstance(one, UncheckedFormSet)]
    return sha256(repr((_values(form), inlines)).encode()).hexdigest()


def _rows(formset: Any) -> list[tuple[Any, Any]]:
    # A row that was added since the form was opened is none of its forms, but of the query.
    rows: dict[Any, Any] = {row.pk: None for row in formset.get_queryset()}
    rows |= {form.instance.pk: _values(form) for form in formset.initial_forms}
    return sorted(rows.items(), key=repr)


def _values(form: Any) -> list[tuple[str, Any]]:
    return [(name, _value(form, name)) for name in form.fields]


def _value(form: Any, name: str) -> str:
    field = form.fields[name]
    value = field.prepare_value(form.get_initial_for_field(field, name))
    return repr(sorted(value, key=repr)) if isinstance(value, list) else str(value)
