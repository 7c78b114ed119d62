"""Columns read as text: a text that did not change need not be understood again."""

import json
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from django.db.models import TextField
from django.db.models.functions import Cast

from apps.allocation.engine.model.quantities import Quantities
from apps.core.units import quantities_milli

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UUID_LENGTH = 36


def as_text(column: str) -> Cast:
    """The column as the database writes it, without the conversions of its field."""
    return Cast(column, TextField())


def microseconds(moment: datetime | None) -> int:
    """Since the epoch, exactly; 0 where there is no moment."""
    return (moment - _EPOCH) // timedelta(microseconds=1) if moment else 0


def moment_us(value: datetime | str) -> int:
    """SQLite keeps moments in UTC without saying so, and returns them parsed or as text."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return microseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def id_text(value: object) -> str:
    """SQLite keeps UUIDs as 32 hex digits."""
    text = str(value)
    if len(text) == _UUID_LENGTH:
        return text
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def json_of(text: str | None) -> Any:
    """None both for a missing value and for JSON's null."""
    return None if text is None else json.loads(text)


# The same few texts, thousands of times in every pass.


@lru_cache(maxsize=4096)
def thousandths(text: str) -> Quantities:
    """Of a JSON object that holds whole thousandths per key."""
    return Quantities.of(json.loads(text))


@lru_cache(maxsize=4096)
def typed_amounts(text: str) -> Quantities:
    """Of a JSON object that holds the amounts as users typed them."""
    return Quantities.of(quantities_milli(json.loads(text)))
