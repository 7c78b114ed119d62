"""A reader of HOCON, without includes and the environment.

Own code, because the known library reads files, addresses and variables of the environment while
it parses, and takes minutes for some texts (docs/decisions/0006-own-hocon-reader.md).
`include` is refused; `${path}` means a key of the same text.
"""

from __future__ import annotations

from apps.vaults.text.bounds import (
    DEPTH,
    SECRETS,
    ParsedText,
    Path,
    SecretSpan,
    check_bounds,
    check_size,
)
from apps.vaults.text.hocon_resolver import resolve
from apps.vaults.text.hocon_scanner import HoconScanner
from apps.vaults.text.hocon_tree import HoconList, HoconNode, HoconReference, HoconText, HoconValue


def read_hocon(text: str, *, is_stored: bool = False) -> ParsedText:
    """The data of a text in HOCON.

    Args:
        is_stored: it was accepted before, perhaps when a text could have more substitutions.

    Raises:
        BadText: naming line and column.
    """
    check_size(text)
    parser = _Parser(text)
    root = parser.document()
    data = resolve(root, parser.parts, is_stored=is_stored)
    check_bounds(data)
    return ParsedText(data, tuple(parser.spans), parser.places)


class _Parser:
    """The parser of one text. Paths are None where a key has no path of its own, as in lists."""

    def __init__(self, text: str) -> None:
        self.parts = HoconScanner(text)
        self.spans: list[SecretSpan] = []
        self.places: dict[Path, int] = {}
        self._level = 0

    def document(self) -> HoconNode:
        """The whole text: a mapping, with or without braces."""
        parts, root = self.parts, HoconNode()
        root.open()
        parts.gap()
        if parts.char() == "[":
            raise parts.bad("this is a list: a vault is a mapping of keys to values")
        if parts.char() == "{":
            self._mapping(root, ())
            parts.gap()
        else:
            self._members(root, (), end="")
        if parts.char():
            raise parts.bad("the mapping ends here: only comments may follow")
        return root

    def _mapping(self, node: HoconNode, path: Path | None) -> None:
        self._deeper()
        node.open()
        self.parts.at += 1
        self._members(node, path, end="}")
        self.parts.at += 1
        self._level -= 1

    def _members(self, node: HoconNode, path: Path | None, *, end: str) -> None:
        parts = self.parts
        parts.gap()
        while parts.char() != end:
            if not parts.char():
                raise parts.bad("a } is missing")
            self._member(node, path)
            before = parts.at
            parts.gap(commas=True)
            if parts.char() != end and not _separates(parts.text[before : parts.at]):
                raise parts.bad("a comma or a new line is expected here")

    def _member(self, node: HoconNode, path: Path | None) -> None:
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
        if is_addition or parts.char() in {":", "="}:
            parts.at += 2 if is_addition else 1
            parts.gap()
        elif parts.char() != "{":
            raise parts.bad("= or : or { is expected after the key")
        self._assign(node, whole, is_addition=is_addition)

    def _assign(self, node: HoconNode, path: Path | None, *, is_addition: bool) -> None:
        at = self.parts.at
        if self.parts.char() == "{" and not is_addition:
            self._mappings(node, path)
            return
        value = self._value()
        if path is not None and path[0] == SECRETS:
            self._note_secret(path, value, is_addition=is_addition)
        if is_addition:
            added = HoconList((value,))
            # In a list no path leads to the key, and it has no earlier value.
            earlier = HoconReference(path, is_optional=True, at=at) if path else HoconList(())
            value = HoconValue((earlier, added), at)
        node.layers.append(value)

    def _mappings(self, node: HoconNode, path: Path | None) -> None:
        """A mapping, and the mappings next to it, which are merged into it."""
        parts = self.parts
        self._mapping(node, path)
        while True:
            before = parts.at
            parts.blanks()
            if parts.char() == "{":
                self._mapping(node, path)
            elif parts.char() == "$":
                if path is not None and path[0] == SECRETS:
                    raise parts.bad("secrets cannot come by a substitution")
                at = parts.at
                node.layers.append(HoconValue((parts.reference(),), at, is_mapping=True))
            elif parts.is_end():
                parts.at = before
                return
            else:
                raise parts.bad("only a mapping can follow a mapping")

    def _value(self) -> HoconValue:
        """The parts from here to the end of the value."""
        parts, at = self.parts, self.parts.at
        found: list[HoconText | HoconReference | HoconList | HoconNode] = []
        while True:
            before = parts.at
            blanks = parts.blanks()
            if parts.is_end():
                parts.at = before
                break
            if blanks and found:
                found.append(HoconText(blanks, is_blank=True))
            found.append(self._part())
        if not found:
            raise parts.bad("a value is expected here")
        return HoconValue(tuple(found), at)

    def _part(self) -> HoconText | HoconReference | HoconList | HoconNode:
        parts, char = self.parts, self.parts.char()
        if char == '"':
            return parts.quoted()
        if char == "$":
            return parts.reference()
        if char == "[":
            return self._list()
        if char == "{":
            node = HoconNode()
            self._mapping(node, None)
            return node
        bare = parts.bare()
        if bare is None:
            raise parts.bad(f"{char} is not allowed in a text without quotes: put it into quotes")
        return bare

    def _list(self) -> HoconList:
        parts = self.parts
        self._deeper()
        parts.at += 1
        values = []
        parts.gap()
        while parts.char() != "]":
            values.append(self._value())
            before = parts.at
            parts.gap(commas=True)
            if not parts.char():
                raise parts.bad("a ] is missing")
            if parts.char() != "]" and not _separates(parts.text[before : parts.at]):
                raise parts.bad("a comma or a new line is expected here")
        parts.at += 1
        self._level -= 1
        return HoconList(tuple(values))

    def _note_secret(self, path: Path, value: HoconValue, *, is_addition: bool) -> None:
        """Note the place of a secret; secrets are plain texts, so that their place is exact."""
        bad = self.parts.bad
        if len(path) == 1:
            words = "secrets must be a mapping of names to texts: secrets { NAME = text }"
            raise bad(words, value.at)
        is_plain = all(isinstance(part, HoconText) for part in value.parts)
        if len(path) > 2 or not is_plain or is_addition:
            words = "a secret must be one text, without substitution, list or mapping"
            raise bad(words, value.at)
        self.spans.append(SecretSpan(path[1], value.at, self.parts.at))

    def _deeper(self) -> None:
        self._level += 1
        if self._level > DEPTH:
            raise self.parts.bad(f"is nested more than {DEPTH} levels deep")


def _separates(gap: str) -> bool:
    return "," in gap or "\n" in gap
