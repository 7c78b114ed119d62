"""A reader of YAML as plain data: words of YAML 1.2, no types, bounded aliases."""

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from apps.vaults.text.bounds import (
    DEPTH,
    DIGITS,
    SECRETS,
    VALUES,
    BadText,
    ParsedText,
    Path,
    SecretSpan,
    check_bounds,
    check_size,
)

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None}


class _Loader(yaml.CSafeLoader):
    """A loader for YAML 1.2 (and `<<`): no is a text, and so is 2026-01-31."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}


for _tag, _pattern, _first in (
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)\Z", "tTfF"),
    ("null", r"(?:~|null|Null|NULL|)\Z", "~nN\0"),
    ("int", r"[-+]?[0-9]+\Z", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z", "-+.0123456789"),
    ("merge", r"<<\Z", "<"),
):
    # An empty scalar has no first character.
    for _sign in ["" if one == "\0" else one for one in _first]:
        _Loader.yaml_implicit_resolvers.setdefault(_sign, []).append(
            (_TAG + _tag, re.compile(_pattern))
        )


def read_yaml(text: str) -> ParsedText:
    """The data of a text in YAML.

    Raises:
        BadText: naming line and column.
    """
    check_size(text)
    _check_events(text)
    try:
        root = yaml.compose(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise _problem(error) from None
    if root is None:
        return ParsedText({})
    if not isinstance(root, yaml.MappingNode):
        raise _bad(root, "a vault is a mapping of keys to values")
    reader = _Reader()
    data = reader.value(root, 1)
    check_bounds(data)
    places = dict(_places(root))
    return ParsedText(data, tuple(_spans(text, root)), places)


def _check_events(text: str) -> None:
    """Check depth and number of nodes before building them, and that there is one document."""
    depth = count = documents = 0
    try:
        for event in yaml.parse(text, Loader=_Loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            count += isinstance(event, yaml.NodeEvent)
            documents += isinstance(event, yaml.DocumentStartEvent)
            if depth > DEPTH:
                raise _bad(event, f"is nested more than {DEPTH} levels deep")
            # Each value has its key.
            if count > 2 * VALUES:
                raise _bad(event, f"the text holds more than {VALUES} values")
            if documents > 1:
                raise _bad(event, "a second document begins here: a vault is one")
    except (yaml.YAMLError, ValueError) as error:
        raise _problem(error) from None


class _Reader:
    """Builds data from nodes; a part that an alias repeats is one object, built once."""

    def __init__(self) -> None:
        self._done: dict[int, Any] = {}
        self._open = set[int]()
        self._merged = 0

    def value(self, node: yaml.Node, level: int) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        if id(node) in self._done:
            return self._done[id(node)]
        if id(node) in self._open:
            raise _bad(node, "an alias leads back into itself")
        if level > DEPTH:
            raise _bad(node, f"is nested more than {DEPTH} levels deep")
        self._open.add(id(node))
        if isinstance(node, yaml.MappingNode):
            _check_tag(node, "map")
            value: Any = self._mapping(node, level)
        else:
            _check_tag(node, "seq")
            value = [self.value(one, level + 1) for one in node.value]
        self._open.discard(id(node))
        self._done[id(node)] = value
        return value

    def _mapping(self, node: yaml.MappingNode, level: int) -> dict[str, Any]:
        data: dict[str, Any] = {}
        below: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                for one in self._merges(value_node, level):
                    below = {**one, **below}
                continue
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != f"{_TAG}str":
                raise _bad(key_node, "a key must be text: put it into quotes")
            if key_node.value in data:
                raise _bad(key_node, f"key {key_node.value[:80]!r} occurs twice in one mapping")
            data[key_node.value] = self.value(value_node, level + 1)
        return {**below, **data}

    def _merges(self, node: yaml.Node, level: int) -> Iterator[dict[str, Any]]:
        """The mappings that `<<` merges, the strongest first."""
        for one in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(one, yaml.MappingNode):
                raise _bad(one, "<< takes a mapping, or a list of mappings")
            brought = self.value(one, level + 1)
            self._merged += len(brought) + 1
            if self._merged > VALUES:
                raise _bad(one, f"more than {VALUES} values come by <<")
            yield brought


def _scalar(node: yaml.ScalarNode) -> Any:
    kind, text = node.tag.removeprefix(_TAG), node.value
    if kind == "str":
        return text
    if kind in {"int", "float"} and len(text) > DIGITS:
        raise _bad(node, f"a number has more than {DIGITS} characters: put it into quotes")
    if kind == "int":
        return int(text)
    if kind == "float":
        return float(text)
    if kind in {"bool", "null"}:
        return _WORDS.get(text.lower())
    raise _bad(node, f"{node.tag[:80]} is no type that a vault knows")


def _check_tag(node: yaml.Node, kind: str) -> None:
    if node.tag != _TAG + kind:
        raise _bad(node, f"{node.tag[:80]} is no type that a vault knows")


def _places(root: yaml.MappingNode) -> Iterator[tuple[Path, int]]:
    """The places of the keys of the first two levels."""
    for key, value in root.value:
        yield (str(key.value),), key.start_mark.index
        if isinstance(value, yaml.MappingNode):
            for below, _ in value.value:
                yield (str(key.value), str(below.value)), below.start_mark.index


def _spans(text: str, root: yaml.MappingNode) -> Iterator[SecretSpan]:
    """The places of secrets: plain texts, and none repeated by an alias."""
    known = [(key, value) for key, value in root.value if key.value == SECRETS]
    others = set[int]()
    for key, value in root.value:
        if key.value != SECRETS:
            _collect(value, others)
    for key, mapping in known:
        if not isinstance(mapping, yaml.MappingNode):
            raise _bad(key, "secrets must be a mapping of names to texts")
        _check_own(mapping, others)
        for name, value in mapping.value:
            _check_own(value, others)
            if not isinstance(value, yaml.ScalarNode) or value.tag != f"{_TAG}str":
                raise _bad(value, "a secret must be one text: put it into quotes")
            start, end = value.start_mark.index, value.end_mark.index
            yield SecretSpan(str(name.value), start, start + len(text[start:end].rstrip()))


def _check_own(node: yaml.Node, others: set[int]) -> None:
    """Refuse a node that an alias repeats, here or elsewhere."""
    if id(node) in others:
        raise _bad(node, "an alias cannot repeat a secret")
    others.add(id(node))


def _collect(node: yaml.Node, found: set[int]) -> None:
    if id(node) in found:
        return
    found.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            _collect(key, found)
            _collect(value, found)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _collect(value, found)


def _bad(node: yaml.Node | yaml.Event, problem: str) -> BadText:
    mark = node.start_mark
    if mark is None:
        return BadText(problem)
    return BadText(problem, line=mark.line + 1, column=mark.column + 1)


def _problem(error: Exception) -> BadText:
    """The parser's error without the line itself, which may hold a secret."""
    mark = getattr(error, "problem_mark", None)
    problem = str(getattr(error, "problem", None) or "is not YAML")[:200]
    if mark is None:
        return BadText(problem)
    return BadText(problem, line=mark.line + 1, column=mark.column + 1)
