"""Amounts per resource key, in whole thousandths of the key's unit (0.5 GPU is 500)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

GPU = "gpu"
WHOLE = 1000

# A pool or node that does not list these keys does not count them; of any other key that it does
# not list, it has no capacity (docs/concepts.md).
UNCOUNTED_UNLESS_LISTED = frozenset({"cpu", "memory_mb", "slot"})


@dataclass(frozen=True, slots=True)
class Quantities:
    """An immutable mapping from resource key to thousandths, sorted by key.

    Zeros are kept: a limit of 0 and a limit that names no such key mean different things.
    Build it with `Quantities.of`, which sorts.
    """

    pairs: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, amounts: Mapping[str, int] | Iterable[tuple[str, int]]) -> Quantities:
        """From thousandths per key."""
        return cls(tuple(sorted(dict(amounts).items())))

    @classmethod
    def whole(cls, **amounts: int) -> Quantities:
        """From whole units per key: `Quantities.whole(gpu=8)`."""
        return cls(tuple(sorted((key, amount * WHOLE) for key, amount in amounts.items())))

    def __getitem__(self, key: str) -> int:
        for name, amount in self.pairs:
            if name == key:
                return amount
        raise KeyError(key)

    def get(self, key: str, default: int = 0) -> int:
        for name, amount in self.pairs:
            if name == key:
                return amount
        return default

    def __contains__(self, key: object) -> bool:
        return any(name == key for name, _ in self.pairs)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def items(self) -> tuple[tuple[str, int], ...]:
        return self.pairs

    def as_dict(self) -> dict[str, int]:
        return dict(self.pairs)

    def positive(self) -> Quantities:
        """Without zeros: requesting 0 of a key is not requesting it."""
        return Quantities(tuple(pair for pair in self.pairs if pair[1] > 0))

    def times(self, factor: int) -> Quantities:
        return Quantities(tuple((name, amount * factor) for name, amount in self.pairs))

    def plus(self, other: Quantities) -> Quantities:
        total = dict(self.pairs)
        for name, amount in other.pairs:
            total[name] = total.get(name, 0) + amount
        return Quantities(tuple(sorted(total.items())))


NOTHING = Quantities()


def is_valid_gpu_request(milli: int) -> bool:
    """A GPU request is a fraction below 1 or a whole number (docs/concepts.md)."""
    return 0 <= milli < WHOLE or milli % WHOLE == 0
