"""Plain data of a document in YAML: no aliases, no types of its own, each key once."""

from typing import Any

import yaml

from apps.core.errors import BadInput

# A document is five levels deep.
DEPTH = 20
# Values, keys among them: each takes some hundred bytes of memory, however short it is.
VALUES = 200_000
_TEXT = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"


def yaml_data(text: str) -> Any:
    """Plain data of a YAML text, for `parse`.

    Raises:
        BadInput: it is not YAML, or more than a document needs; with line and column.
    """
    try:
        _check_events(text)
        return yaml.load(text, Loader=_Loader)  # noqa: S506  # a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInput(f"This is not YAML: {error}", fields={"body": "is not YAML"}) from error


class _Loader(yaml.CSafeLoader):
    """Requires keys that are text and unique: of two the parser would silently take the last."""

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001, FBT002  # the signature of PyYAML
    ) -> dict[Any, Any]:
        seen = set[str]()
        for key, _value in node.value:
            if key.tag == _MERGE:
                raise _refusal(key, "<< is not allowed", "holds <<")
            if key.tag != _TEXT:
                raise _refusal(key, "a key must be text: put it into quotes", "has a key not text")
            if key.value in seen:
                name = repr(key.value[:80])
                raise _refusal(key, f"key {name} occurs twice", f"names {name} twice")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _check_events(text: str) -> None:
    """Refuse unsafe YAML before anything is built from it."""
    depth = count = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        count += isinstance(event, yaml.NodeEvent)
        if count > VALUES:
            raise _refusal(event, f"the text holds more than {VALUES} values", "is too much")
        if depth > DEPTH:
            problem = f"nested more than {DEPTH} levels deep"
            raise _refusal(event, problem, f"is {problem}")
        # Aliases let a small text describe a huge document.
        if isinstance(event, yaml.AliasEvent):
            raise _refusal(event, "YAML aliases are not allowed", "holds an alias")
        tag = getattr(event, "tag", None)
        if tag is not None:
            name = f"the type {tag[:80]}"
            raise _refusal(event, f"{name} is not allowed", f"names {name}")


def _refusal(place: yaml.Node | yaml.Event, problem: str, at_body: str) -> BadInput:
    mark = place.start_mark
    where = f" Line {mark.line + 1}, column {mark.column + 1}." if mark else ""
    return BadInput(f"{problem[0].upper()}{problem[1:]}.{where}", fields={"body": at_body})
