"""Strict reading of JSON objects: every field has its place, and a wrong one is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, TypeVar

from apps.allocation.engine.model.quantities import GPU, Quantities, is_valid_gpu_request
from apps.core.errors import BadInput
from apps.core.units import quantities_milli, quantities_text

T = TypeVar("T")
MICROSECONDS = 1_000_000


def bad(field: str, problem: str) -> BadInput:
    return BadInput(f"{field} {problem}.", fields={field: problem})


class FieldReader:
    """One object of a file; `path` is what errors call it. `done` refuses unread fields."""

    def __init__(self, data: object, path: str) -> None:
        if not isinstance(data, Mapping):
            raise bad(path, "must be an object")
        self.data: Mapping[str, Any] = data
        self.path = path
        self._asked: set[str] = set()

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        self._asked.add(name)
        return self.data.get(name) is not None

    def raw(self, name: str) -> Any:
        self._asked.add(name)
        if name not in self.data:
            raise bad(self.at(name), "is missing")
        return self.data[name]

    def done(self) -> None:
        unknown = sorted(set(self.data) - self._asked)
        if unknown:
            known = ", ".join(sorted(self._asked))
            raise bad(self.at(unknown[0]), f"is not a known field; known are {known}")

    def text(self, name: str) -> str:
        value = self.raw(name)
        if not isinstance(value, str) or not value:
            raise bad(self.at(name), "must be a text")
        return value

    def optional_text(self, name: str) -> str | None:
        return self.text(name) if self.has(name) else None

    def ident(self, name: str) -> str | int:
        value = self.raw(name)
        if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
            raise bad(self.at(name), "must be a text or a whole number")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        if not self.has(name):
            return default
        value = self.raw(name)
        if not isinstance(value, bool):
            raise bad(self.at(name), "must be true or false")
        return value

    def number(self, name: str, *, default: int, least: int | None = None) -> int:
        if not self.has(name):
            return default
        value = self.raw(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise bad(self.at(name), "must be a whole number")
        if least is not None and value < least:
            raise bad(self.at(name), f"must be at least {least}")
        return value

    def optional_number(self, name: str) -> int | None:
        return self.number(name, default=0, least=0) if self.has(name) else None

    def time_us(self, name: str) -> int:
        """Seconds with at most six places, 0 where the field is left out."""
        return micros(self.raw(name), self.at(name)) if self.has(name) else 0

    def optional_time_us(self, name: str) -> int | None:
        return self.time_us(name) if self.has(name) else None

    def amounts(self, name: str) -> Quantities:
        """Amounts per key, nothing where the field is left out."""
        return quantities(self.raw(name), self.at(name)) if self.has(name) else Quantities()

    def choice(self, name: str, parse: Callable[[str], T], default: T) -> T:
        if not self.has(name):
            return default
        value = self.raw(name)
        try:
            return parse(value)
        except ValueError:
            raise bad(self.at(name), f"cannot be {value!r}") from None

    def items(self, name: str) -> list[Any]:
        if not self.has(name):
            return []
        value = self.raw(name)
        if not isinstance(value, list):
            raise bad(self.at(name), "must be a list")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.items(name)
        if not all(isinstance(value, str) for value in values):
            raise bad(self.at(name), "must be a list of texts")
        return tuple(values)

    def objects(self, name: str) -> list[FieldReader]:
        return [
            FieldReader(value, f"{self.at(name)}[{number}]")
            for number, value in enumerate(self.items(name))
        ]


def quantities(value: object, path: str) -> Quantities:
    return Quantities.of(quantities_milli(quantities_text(value, field=path, keys=None)))


def micros(value: object, path: str) -> int:
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        raise bad(path, "must be a number of seconds")
    scaled = Decimal(value) * MICROSECONDS
    if not scaled.is_finite() or scaled != int(scaled):
        raise bad(path, "must be seconds with at most six places")
    return int(scaled)


def read_request(reader: FieldReader, default: Quantities) -> Quantities:
    if not reader.has("request"):
        return default
    request = reader.amounts("request")
    if not is_valid_gpu_request(request.get(GPU)):
        raise bad(reader.at("request.gpu"), "must be a fraction below 1 or a whole number")
    return request
