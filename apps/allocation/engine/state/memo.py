"""What later passes need not find again, by what it is and the version of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

Value = TypeVar("Value")


class Memo:
    """Of each `what` the latest value, with the version of the inputs that it was found from.

    Versions are equal where the inputs are. A pass gives the same plan with an empty memo.
    """

    __slots__ = ("_numbers", "_values")

    def __init__(self) -> None:
        self._values: dict[Hashable, tuple[object, object]] = {}
        self._numbers: dict[Hashable, tuple[object, int]] = {}

    def number(self, what: Hashable, inputs: object) -> int:
        """A short version of `inputs`: another one whenever they differ from the last ones."""
        last, number = self._numbers.get(what, (None, 0))
        if number == 0 or last != inputs:
            number += 1
            self._numbers[what] = (inputs, number)
        return number

    def get(self, what: Hashable, version: object, find: Callable[[], Value]) -> Value:
        """The value of this version; `find` is called where another version is stored, or none."""
        entry = self._values.get(what)
        if entry is not None and entry[0] == version:
            return cast("Value", entry[1])
        value = find()
        self._values[what] = (version, value)
        return value

    def clear(self) -> None:
        """Forget all values."""
        self._values.clear()
