"""Who did what with a vault, without the names that a tenant's wall keeps from the reader."""

from collections.abc import Iterable
from typing import TypeVar

from django.db.models import Model

from apps.accounts.models import User
from apps.accounts.strangers import strangers_of

Row = TypeVar("Row", bound=Model)


def without_strangers(reader: User, rows: Iterable[Row], by: str) -> list[Row]:
    """The rows to be shown, each with nobody in `by` where that is a stranger; never save them."""
    found = list(rows)
    people = {getattr(row, f"{by}_id") for row in found}
    hidden = set(strangers_of(reader).filter(pk__in=people).values_list("pk", flat=True))
    for row in found:
        if getattr(row, f"{by}_id") in hidden:
            setattr(row, by, None)
    return found
