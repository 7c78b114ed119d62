"""The lines of a YAML text by path, for errors that name the place."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from apps.policies.document.yaml_text import yaml_data

_LAST_PART = re.compile(r"(\.[^.\[]*|\[\d+\]|^[^.\[]+)$")


@dataclass(frozen=True, slots=True)
class SourceText:
    """What a user sent: the plain data, and where YAML has which line (none for JSON)."""

    data: Any
    lines: Mapping[str, int] = field(default_factory=dict)

    def line_of(self, path: str) -> int | None:
        """The line of a path such as `pools[1].capacity.gpu`, else that of what it is part of."""
        while path and path not in self.lines:
            path = _LAST_PART.sub("", path) if _LAST_PART.search(path) else ""
        return self.lines[path] if path else None


def source_text(text: str) -> SourceText:
    """The data of a YAML text with its lines; raises what `yaml_data` raises."""
    data = yaml_data(text)
    lines: dict[str, int] = {}
    root = yaml.compose(text, Loader=yaml.CSafeLoader)
    if root is not None:
        _walk(root, "", lines)
    return SourceText(data, lines)


def _walk(node: yaml.Node, path: str, lines: dict[str, int]) -> None:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = f"{path}.{key.value}" if path else str(key.value)
            lines[inner] = key.start_mark.line + 1
            _walk(value, inner, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, f"{path}[{index}]", lines)
