"""The tree of a HOCON text before substitutions: keys with layers of values."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class HoconText:
    """A part of a value: quoted text, bare text, or the blanks between two parts."""

    text: str
    is_quoted: bool = False
    is_blank: bool = False


@dataclass(frozen=True, slots=True)
class HoconReference:
    """`${path}`, or `${?path}`, which may be missing."""

    path: tuple[str, ...]
    is_optional: bool
    at: int


@dataclass(frozen=True, slots=True)
class HoconList:
    """A list; each entry is a value."""

    values: tuple[HoconValue, ...]


@dataclass(frozen=True, slots=True)
class HoconValue:
    """Adjacent parts, at `at` of the text.

    With `is_mapping` it is next to a mapping, and must be one as well.
    """

    parts: tuple[HoconText | HoconReference | HoconList | HoconNode, ...]
    at: int
    is_mapping: bool = False


@dataclass(slots=True)
class HoconNode:
    """All layers of one key, in order: merged mappings, and other values between them."""

    layers: list[dict[str, HoconNode] | HoconValue] = field(default_factory=list)

    def child(self, key: str) -> HoconNode:
        """The node below, in the mapping that is written last."""
        if not self.layers or not isinstance(self.layers[-1], dict):
            self.layers.append({})
        last = self.layers[-1]
        assert isinstance(last, dict)  # noqa: S101  # made just before; for the type checker
        return last.setdefault(key, HoconNode())

    def open(self) -> None:
        """Open a mapping here, even an empty one."""
        if not self.layers or not isinstance(self.layers[-1], dict):
            self.layers.append({})
