"""What a text in HOCON says, before substitutions are put in: keys with layers of values."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Text:
    """A part of a value: quoted text, bare text, or the blanks between two parts."""

    text: str
    is_quoted: bool = False
    is_blank: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    """`${path}`, or `${?path}`, which may be missing."""

    path: tuple[str, ...]
    is_optional: bool
    at: int


@dataclass(frozen=True, slots=True)
class Items:
    """A list; each entry is a value."""

    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """Parts that stand beside each other, at `at` of the text.

    With `is_mapping` it stands beside a mapping, and must be one as well.
    """

    parts: tuple[Text | Reference | Items | Node, ...]
    at: int
    is_mapping: bool = False


@dataclass(slots=True)
class Node:
    """Everything that is said of one key, in order: mappings in one, other values between them."""

    layers: list[dict[str, Node] | Value] = field(default_factory=list)

    def child(self, key: str) -> Node:
        """The node below, in the mapping that is written last."""
        if not self.layers or not isinstance(self.layers[-1], dict):
            self.layers.append({})
        last = self.layers[-1]
        assert isinstance(last, dict)  # noqa: S101  # made just before; for the type checker
        return last.setdefault(key, Node())

    def open(self) -> None:
        """A mapping is written here, be it empty."""
        if not self.layers or not isinstance(self.layers[-1], dict):
            self.layers.append({})
