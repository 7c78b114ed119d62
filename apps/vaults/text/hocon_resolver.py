"""Resolution of the substitutions of a HOCON text, within bounds."""

from __future__ import annotations

import re
from typing import Any, Final

from apps.vaults.text.bounds import DIGITS, SECRETS, TEXT_BYTES, VALUES, BadText
from apps.vaults.text.hocon_scanner import HoconScanner
from apps.vaults.text.hocon_tree import HoconList, HoconNode, HoconReference, HoconText, HoconValue

# The most substitutions that may lead to one another.
CHAIN = 50
# Steps of the work; a text that needs more repeats itself.
STEPS = 20 * VALUES
# Each may repeat a large part of the text.
SUBSTITUTIONS = 2000
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}


class _Missing:
    """The value of an optional substitution that finds no key."""


MISSING: Final = _Missing()


def resolve(root: HoconNode, parts: HoconScanner, *, is_stored: bool = False) -> dict[str, Any]:
    """The data of the whole text; equal parts may be one object, and none is to be changed.

    Args:
        is_stored: earlier versions accepted texts with more substitutions, which repeat more;
            stored ones are still read.

    Raises:
        BadText: a substitution leads nowhere, in a circle or to too much.
    """
    found = _Resolver(root, parts, is_stored=is_stored).node(root)
    assert isinstance(found, dict)  # noqa: S101  # a document begins as a mapping
    return found


class _Resolver:
    def __init__(self, root: HoconNode, parts: HoconScanner, *, is_stored: bool) -> None:
        self.root, self.parts, self.is_stored = root, parts, is_stored
        self._done: dict[int, Any] = {}
        # The value before the current layer, of nodes that are being resolved.
        self._earlier: dict[int, Any] = {}
        self._steps = self._chain = self._references = self._written_signs = 0

    def node(self, node: HoconNode) -> Any:
        """The value of a key from all its layers, in order."""
        if id(node) in self._done:
            return self._done[id(node)]
        whole: Any = MISSING
        for layer in node.layers:
            self._earlier[id(node)] = whole
            value = self._mapping(layer) if isinstance(layer, dict) else self._value(layer)
            if isinstance(layer, HoconValue) and layer.is_mapping and not isinstance(value, dict):
                raise self.parts.bad("this is no mapping, and follows one", layer.at)
            if value is not MISSING:
                whole = self._merged(whole, value)
        self._earlier.pop(id(node), None)
        self._done[id(node)] = whole
        return whole

    def _mapping(self, layer: dict[str, HoconNode]) -> dict[str, Any]:
        self._step(len(layer) + 1)
        values = {key: self.node(child) for key, child in layer.items()}
        return {key: value for key, value in values.items() if value is not MISSING}

    def _merged(self, below: Any, above: Any) -> Any:
        if not isinstance(below, dict) or not isinstance(above, dict):
            return above
        self._step((0 if self.is_stored else len(below)) + len(above) + 1)
        whole = dict(below)
        for key, value in above.items():
            whole[key] = self._merged(below[key], value) if key in below else value
        return whole

    def _value(self, value: HoconValue) -> Any:
        self._step(len(value.parts))
        found = [(part, self._part(part)) for part in value.parts]
        there = [(part, one) for part, one in found if one is not MISSING]
        solid = [one for part, one in there if not (isinstance(part, HoconText) and part.is_blank)]
        if len(value.parts) == 1 or not solid:
            return solid[0] if solid else MISSING
        if any(isinstance(one, list) for one in solid):
            return self._joined(solid, value.at)
        if any(isinstance(one, dict) for one in solid):
            return self._overlaid(solid, value.at)
        return self._written(value, [one for _, one in there])

    def _part(self, part: HoconText | HoconReference | HoconList | HoconNode) -> Any:
        if isinstance(part, HoconText):
            return part.text if part.is_quoted or part.is_blank else self._typed(part.text)
        if isinstance(part, HoconReference):
            return self._referred(part)
        if isinstance(part, HoconNode):
            return self.node(part)
        self._step(len(part.values))
        values = [self._value(one) for one in part.values]
        return [one for one in values if one is not MISSING]

    def _typed(self, text: str) -> Any:
        number = _NUMBER.fullmatch(text)
        if number is None:
            return _WORDS.get(text, text)
        if len(text) > DIGITS:
            raise BadText(f"a number has more than {DIGITS} characters: put it into quotes")
        return float(text) if number[1] or number[2] else int(text)

    def _joined(self, values: list[Any], at: int) -> list[Any]:
        if not all(isinstance(one, list) for one in values):
            raise self.parts.bad("a list cannot be joined with another kind of value", at)
        self._step(sum(len(one) for one in values))
        return [one for part in values for one in part]

    def _overlaid(self, values: list[Any], at: int) -> dict[str, Any]:
        whole: dict[str, Any] = {}
        for one in values:
            if not isinstance(one, dict):
                raise self.parts.bad("a mapping cannot be joined with another kind of value", at)
            whole = self._merged(whole, one)
        return whole

    def _written(self, value: HoconValue, found: list[Any]) -> str:
        """Adjacent words are one text, with the blanks between them."""
        words = [_as_text(one) for one in found]
        if all(isinstance(part, HoconText) for part in value.parts):
            # As it is written: 1.10 does not become 1.1.
            words = [part.text for part in value.parts if isinstance(part, HoconText)]
        before = 0 if self.is_stored else self._written_signs
        self._written_signs = before + sum(map(len, words))
        if self._written_signs > 2 * TEXT_BYTES:
            raise self.parts.bad("substitutions make this text too long", value.at)
        return "".join(words)

    def _referred(self, reference: HoconReference) -> Any:
        if reference.path[0] == SECRETS:
            raise self.parts.bad("a substitution cannot show a secret elsewhere", reference.at)
        self._references += 1
        if self._references > SUBSTITUTIONS and not self.is_stored:
            words = f"this is beyond the first {SUBSTITUTIONS} substitutions of a text"
            raise self.parts.bad(words, reference.at)
        self._chain += 1
        if self._chain > CHAIN:
            words = f"more than {CHAIN} substitutions lead to one another here"
            raise self.parts.bad(words, reference.at)
        found = self._looked_up(reference)
        self._chain -= 1
        return found

    def _looked_up(self, reference: HoconReference) -> Any:
        node = self.root
        for place, key in enumerate(reference.path):
            if any(isinstance(layer, HoconValue) for layer in node.layers):
                return self._inside(reference, self._whole(node, reference), place)
            below = node.layers[0] if node.layers else {}
            if not isinstance(below, dict) or key not in below:
                raise self._unknown(reference)
            node = below[key]
        return self._whole(node, reference)

    def _inside(self, reference: HoconReference, value: Any, place: int) -> Any:
        """The value at the rest of the path, in data."""
        for key in reference.path[place:]:
            if value is MISSING and reference.is_optional:
                return MISSING
            if not isinstance(value, dict) or key not in value:
                raise self._unknown(reference)
            value = value[key]
        return value

    def _whole(self, node: HoconNode, reference: HoconReference) -> Any:
        """The value of a node; inside its own value, the one before it."""
        if id(node) not in self._earlier:
            return self.node(node)
        earlier = self._earlier[id(node)]
        if earlier is MISSING and not reference.is_optional:
            raise self.parts.bad("this substitution leads back to itself", reference.at)
        return earlier

    def _unknown(self, reference: HoconReference) -> BadText:
        name = ".".join(reference.path)[:80]
        return self.parts.bad(
            f"{name} is no key of this text, and variables of the environment are not read",
            reference.at,
        )

    def _step(self, count: int) -> None:
        self._steps += count
        if self._steps > STEPS:
            raise BadText("its substitutions make it larger than any configuration")


def _as_text(value: Any) -> str:
    for word, known in _WORDS.items():
        if value is known:
            return word
    return str(value)
