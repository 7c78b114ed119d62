"""Bounds, places and errors that the readers of all formats share."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apps.core.errors import BadInput

TEXT_BYTES = 256 * 1024
DEPTH = 32
# Values in all, mappings and lists counted, aliases and substitutions written out.
VALUES = 10_000
# No number of a configuration is longer, and the cost of longer ones grows faster than they do.
DIGITS = 40
# The key of the values that no reader gets again.
SECRETS = "secrets"

Path = tuple[str, ...]


class BadText(BadInput):
    """The text cannot be used; `line` and `column` count from 1."""

    def __init__(self, problem: str, *, line: int = 0, column: int = 0) -> None:
        self.line, self.column, self.problem = line, column, problem
        where = f"line {line}, column {column}: " if line else ""
        super().__init__(f"text, {where}{problem}.", fields={"text": f"{where}{problem}"})


@dataclass(frozen=True, slots=True)
class SecretSpan:
    """The place of a secret's value in the text: from `start` to before `end`."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ParsedText:
    """The content of a text, as plain JSON data.

    `places` holds the places of the keys of the first two levels. Neither shows in a traceback.
    """

    data: Mapping[str, Any] = field(repr=False)
    spans: tuple[SecretSpan, ...] = ()
    places: Mapping[Path, int] = field(default_factory=dict)


def bad_text(text: str, at: int, problem: str) -> BadText:
    """The problem at this place of the text."""
    line = text.count("\n", 0, at) + 1
    return BadText(problem, line=line, column=at - text.rfind("\n", 0, at))


def check_size(text: str) -> None:
    """Refuse a text that is too long or no valid Unicode.

    Raises:
        BadText: names the size.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise bad_text(text, error.start, "holds half of a surrogate pair") from None
    if size > TEXT_BYTES:
        raise BadText(f"it has {size} bytes: at most {TEXT_BYTES}")
    if "\0" in text:
        raise bad_text(text, text.index("\0"), "holds a NUL character")


def check_bounds(data: object) -> None:
    """Refuse data that is deeper or larger than a vault may be, shared parts written out.

    Raises:
        BadText: names the bound.
    """
    _measured(data, 1, {})


# Height, count and characters of a value.
_Measure = tuple[int, int, int]


def _measured(value: object, level: int, known: dict[int, _Measure]) -> _Measure:
    """Measure a value; each shared part is measured once."""
    if not isinstance(value, dict | list):
        return 0, 1, _checked_length(value)
    if id(value) not in known:
        _check_level(level)
        parts = value.values() if isinstance(value, dict) else value
        height, count, size = 1, 1, 2
        if isinstance(value, dict):
            size += sum(_checked_length(key) for key in value)
        for part in parts:
            below = _measured(part, level + 1, known)
            height, count, size = max(height, below[0] + 1), count + below[1], size + below[2]
            if count > VALUES:
                raise BadText(f"it holds more than {VALUES} values")
            if size > 2 * TEXT_BYTES:
                raise BadText(f"written out it is longer than {2 * TEXT_BYTES} characters")
        known[id(value)] = (height, count, size)
    _check_level(level + known[id(value)][0] - 1)
    return known[id(value)]


def _check_level(level: int) -> None:
    if level > DEPTH:
        raise BadText(f"it is nested more than {DEPTH} levels deep")


def _checked_length(value: object) -> int:
    """The approximate length, written out; refuses values that JSON or a database cannot hold."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadText("it holds half of a surrogate pair") from None
        if "\0" in value:
            raise BadText("it holds a NUL character")
    elif isinstance(value, float) and not math.isfinite(value):
        raise BadText("it holds a number that is not finite")
    elif isinstance(value, int) and abs(value) >= 10**DIGITS:
        raise BadText(f"a number has more than {DIGITS} digits: put it into quotes")
    return len(value) if isinstance(value, str) else 8
