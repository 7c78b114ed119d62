"""The lines of a YAML text by path, for errors that name the place."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from apps.policies.document.yaml_text import yaml_data

_ITEM = re.compile(r"\[(\d{1,9})\]\.?")


@dataclass(frozen=True, slots=True)
class SourceText:
    """What a user sent: the plain data, and its text where that is YAML."""

    data: Any
    text: str = ""

    def lines_of(self, paths: Iterable[str]) -> dict[str, int | None]:
        """The lines of paths such as `pools[1].capacity.gpu`, else of what each is part of.

        Looked up when an error needs them: all of them would take many times the text.
        """
        root = yaml.compose(self.text, Loader=yaml.CSafeLoader) if self.text else None
        return {path: _line_of(root, path) for path in paths}


def source_text(text: str) -> SourceText:
    """The data of a YAML text with its lines; raises what `yaml_data` raises."""
    return SourceText(yaml_data(text), text)


def _line_of(root: yaml.Node | None, path: str) -> int | None:
    line, node, rest = None, root, path
    while rest and node is not None:
        key, node, rest = _below(node, rest)
        if key is not None:
            line = key.start_mark.line + 1
    return line


def _below(node: yaml.Node, path: str) -> tuple[yaml.Node | None, yaml.Node | None, str]:
    """The key or item that the path begins with, its value, and the rest of the path."""
    if isinstance(node, yaml.SequenceNode):
        match = _ITEM.match(path)
        index = int(match[1]) if match else len(node.value)
        if match is None or index >= len(node.value):
            return None, None, path
        return node.value[index], node.value[index], path[match.end() :]
    found: tuple[yaml.Node | None, yaml.Node | None, str] = (None, None, path)
    if isinstance(node, yaml.MappingNode):
        longest = -1
        for key, value in node.value:
            name = str(key.value)
            is_prefix = path == name or path.startswith((f"{name}.", f"{name}["))
            if is_prefix and len(name) > longest:
                longest = len(name)
                found = key, value, path[len(name) :].removeprefix(".")
    return found
