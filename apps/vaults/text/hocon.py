"""Reading HOCON, the part of it that a text by itself can say.

Own code, because the known library reads files, addresses and variables of the environment while
it parses, and takes minutes for what a vault may hold (docs/decisions/0006-own-hocon-reader.md).
`include` is refused; `${path}` means a key of the same text.
"""

from __future__ import annotations

from apps.vaults.text.hocon_parts import Parts
from apps.vaults.text.hocon_resolving import resolved
from apps.vaults.text.hocon_tree import Items, Node, Reference, Text, Value
from apps.vaults.text.shapes import (
    DEPTH,
    SECRETS,
    Path,
    ReadText,
    Span,
    check_bounds,
    check_size,
)


def read_hocon(text: str, *, is_stored: bool = False) -> ReadText:
    """The data of a text in HOCON.

    Args:
        is_stored: it was taken before, perhaps when a text could have more substitutions.

    Raises:
        BadText: naming line and column.
    """
    check_size(text)
    parser = _Parser(text)
    root = parser.document()
    data = resolved(root, parser.parts, is_stored=is_stored)
    check_bounds(data)
    return ReadText(data, tuple(parser.spans), parser.places)


class _Parser:
    """One text, once. Paths are None where a key is none of the text's own, as in lists."""

    def __init__(self, text: str) -> None:
        self.parts = Parts(text)
        self.spans: list[Span] = []
        self.places: dict[Path, int] = {}
        self._level = 0

    def document(self) -> Node:
        """The whole text: a mapping, with or without braces."""
        parts, root = self.parts, Node()
        root.open()
        parts.gap()
        if parts.sign() == "[":
            raise parts.bad("a list stands here: a vault is a mapping of keys to values")
        if parts.sign() == "{":
            self._mapping(root, ())
            parts.gap()
        else:
            self._members(root, (), end="")
        if parts.sign():
            raise parts.bad("the mapping is over here: only comments may follow")
        return root

    def _mapping(self, node: Node, path: Path | None) -> None:
        self._deeper()
        node.open()
        self.parts.at += 1
        self._members(node, path, end="}")
        self.parts.at += 1
        self._level -= 1

    def _members(self, node: Node, path: Path | None, *, end: str) -> None:
        parts = self.parts
        parts.gap()
        while parts.sign() != end:
            if not parts.sign():
                raise parts.bad("a } is missing")
            self._member(node, path)
            before = parts.at
            parts.gap(commas=True)
            if parts.sign() != end and not _separates(parts.text[before : parts.at]):
                raise parts.bad("a comma or a new line is expected here")

    def _member(self, node: Node, path: Path | None) -> None:
        parts, start = self.parts, self.parts.at
        parts.refuse_include()
        key = parts.key()
        whole = None if path is None else (*path, *key)
        if len(key) + self._level > DEPTH:
            raise parts.bad(f"is nested more than {DEPTH} levels deep", start)
        for part in key:
            node = node.child(part)
        if whole is not None and len(whole) <= 2:
            self.places.setdefault(whole, start)
        parts.gap()
        is_addition = parts.text.startswith("+=", parts.at)
        if is_addition or parts.sign() in {":", "="}:
            parts.at += 2 if is_addition else 1
            parts.gap()
        elif parts.sign() != "{":
            raise parts.bad("= or : or { is expected after the key")
        self._assign(node, whole, is_addition=is_addition)

    def _assign(self, node: Node, path: Path | None, *, is_addition: bool) -> None:
        at = self.parts.at
        if self.parts.sign() == "{" and not is_addition:
            self._mappings(node, path)
            return
        value = self._value()
        if path is not None and path[0] == SECRETS:
            self._note_secret(path, value, is_addition=is_addition)
        if is_addition:
            added = Items((value,))
            # In a list no path leads to the key, and nothing stands before it.
            earlier = Reference(path, is_optional=True, at=at) if path else Items(())
            value = Value((earlier, added), at)
        node.layers.append(value)

    def _mappings(self, node: Node, path: Path | None) -> None:
        """A mapping, and others beside it, which are merged into it."""
        parts = self.parts
        self._mapping(node, path)
        while True:
            before = parts.at
            parts.blanks()
            if parts.sign() == "{":
                self._mapping(node, path)
            elif parts.sign() == "$":
                if path is not None and path[0] == SECRETS:
                    raise parts.bad("secrets cannot come by a substitution")
                at = parts.at
                node.layers.append(Value((parts.reference(),), at, is_mapping=True))
            elif parts.is_end():
                parts.at = before
                return
            else:
                raise parts.bad("only a mapping can stand beside a mapping")

    def _value(self) -> Value:
        """The parts that stand here, up to the end of the value."""
        parts, at = self.parts, self.parts.at
        found: list[Text | Reference | Items | Node] = []
        while True:
            before = parts.at
            blanks = parts.blanks()
            if parts.is_end():
                parts.at = before
                break
            if blanks and found:
                found.append(Text(blanks, is_blank=True))
            found.append(self._part())
        if not found:
            raise parts.bad("a value is expected here")
        return Value(tuple(found), at)

    def _part(self) -> Text | Reference | Items | Node:
        parts, sign = self.parts, self.parts.sign()
        if sign == '"':
            return parts.quoted()
        if sign == "$":
            return parts.reference()
        if sign == "[":
            return self._list()
        if sign == "{":
            node = Node()
            self._mapping(node, None)
            return node
        bare = parts.bare()
        if bare is None:
            raise parts.bad(f"{sign} cannot stand in a text without quotes: put it into quotes")
        return bare

    def _list(self) -> Items:
        parts = self.parts
        self._deeper()
        parts.at += 1
        values = []
        parts.gap()
        while parts.sign() != "]":
            values.append(self._value())
            before = parts.at
            parts.gap(commas=True)
            if not parts.sign():
                raise parts.bad("a ] is missing")
            if parts.sign() != "]" and not _separates(parts.text[before : parts.at]):
                raise parts.bad("a comma or a new line is expected here")
        parts.at += 1
        self._level -= 1
        return Items(tuple(values))

    def _note_secret(self, path: Path, value: Value, *, is_addition: bool) -> None:
        """Secrets are plain texts: then what is hidden is exactly where they stand."""
        bad = self.parts.bad
        if len(path) == 1:
            words = "secrets must be a mapping of names to texts: secrets { NAME = text }"
            raise bad(words, value.at)
        is_plain = all(isinstance(part, Text) for part in value.parts)
        if len(path) > 2 or not is_plain or is_addition:
            words = "a secret must be one text, without substitution, list or mapping"
            raise bad(words, value.at)
        self.spans.append(Span(path[1], value.at, self.parts.at))

    def _deeper(self) -> None:
        self._level += 1
        if self._level > DEPTH:
            raise self.parts.bad(f"is nested more than {DEPTH} levels deep")


def _separates(gap: str) -> bool:
    return "," in gap or "\n" in gap
