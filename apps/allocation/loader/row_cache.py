"""What was built from rows, used again as long as the rows are the same."""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Row = TypeVar("Row", bound=tuple[object, ...])
Built = TypeVar("Built")


class RowCache(Generic[Key, Row, Built]):
    """Builds from every row once, and again when any of its columns changed.

    Rows are read again each time and compared in full. So it does not matter which process wrote
    them, or whether a transaction was rolled back since: nothing is ever out of date. What was not
    among the last rows is forgotten. Threads can share it.
    """

    def __init__(self, build: Callable[[Row], Built]) -> None:
        self._build = build
        self._kept: dict[Key, tuple[Row, Built]] = {}

    def of(self, rows: Iterable[tuple[Key, Row]]) -> list[Built]:
        """What follows from each row, in their order; a key has one row."""
        before, build = self._kept, self._build
        kept: dict[Key, tuple[Row, Built]] = {}
        for key, row in rows:
            known = before.get(key)
            kept[key] = known if known is not None and known[0] == row else (row, build(row))
        self._kept = kept
        return [built for _, built in kept.values()]
