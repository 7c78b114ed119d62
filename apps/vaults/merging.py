"""Laying vaults over one another, and where each value came from; pure.

From the lowest to the highest: the owner's vaults, those of groups by rank, and then what is
enforced. Mappings are merged, everything else replaces.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from apps.vaults.text.shapes import Path

# In a list of enforced paths: the whole vault.
EVERYTHING = "*"


@dataclass(frozen=True, slots=True)
class Origin:
    """The vault a value came from."""

    vault_id: UUID
    name: str
    version: int
    is_personal: bool = False
    is_enforced: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """One vault: its data, and the paths in it that are enforced."""

    origin: Origin
    data: Mapping[str, Any] = field(repr=False)
    enforced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Merged:
    """The data, and the origin of each value that is no mapping, or an empty one."""

    data: Mapping[str, Any] = field(repr=False)
    origins: Mapping[Path, Origin]


def merged(layers: Sequence[Layer]) -> Merged:
    """All layers, the first lowest, and above them what is enforced in them, in the same order."""
    data: dict[str, Any] = {}
    origins: dict[Path, Origin] = {}
    for layer in layers:
        _lay(data, origins, layer.data, layer.origin, ())
    _enforce(data, origins, layers)
    return Merged(data, origins)


def enforced_part(layers: Sequence[Layer]) -> Merged:
    """Only what is enforced."""
    data: dict[str, Any] = {}
    origins: dict[Path, Origin] = {}
    _enforce(data, origins, layers)
    return Merged(data, origins)


def values_of(merged_data: Merged) -> Iterator[tuple[Path, Any, Origin]]:
    """Each value with its path and origin, by path."""
    for path, origin in sorted(merged_data.origins.items()):
        value: Any = merged_data.data
        for key in path:
            value = value[key]
        yield path, value, origin


def selected(data: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """The part of the data at these paths; what is not there is left out."""
    found: dict[str, Any] = {}
    for path in paths:
        if path == EVERYTHING:
            return dict(data)
        keys = path.split(".")
        value: Any = data
        for key in keys:
            if not isinstance(value, Mapping) or key not in value:
                break
            value = value[key]
        else:
            part = value
            for key in reversed(keys):
                part = {key: part}
            _lay(found, {}, part, None, ())
    return found


def _enforce(data: dict[str, Any], origins: dict[Path, Origin], layers: Sequence[Layer]) -> None:
    for layer in layers:
        origin = Origin(
            layer.origin.vault_id,
            layer.origin.name,
            layer.origin.version,
            layer.origin.is_personal,
            is_enforced=True,
        )
        _lay(data, origins, selected(layer.data, layer.enforced), origin, ())


def _lay(
    data: dict[str, Any],
    origins: dict[Path, Any],
    above: Mapping[str, Any],
    origin: Origin | None,
    path: Path,
) -> None:
    """Lay a mapping over what is there, which is changed; what is laid over it is not."""
    for key, value in above.items():
        here = (*path, key)
        if isinstance(value, Mapping) and value:
            below = data.get(key)
            if not isinstance(below, dict):
                data[key] = below = {}
            # Of a value that is replaced, and of an empty mapping, which is so no longer.
            origins.pop(here, None)
            _lay(below, origins, value, origin, here)
        elif isinstance(value, Mapping) and isinstance(data.get(key), dict):
            # An empty mapping adds nothing to one that is there.
            continue
        else:
            _forget(origins, data.get(key), here)
            data[key] = {} if isinstance(value, Mapping) else value
            origins[here] = origin


def _forget(origins: dict[Path, Any], value: object, path: Path) -> None:
    """The value is replaced: what was below it came from nowhere any more."""
    if isinstance(value, dict) and value:
        for key, below in value.items():
            _forget(origins, below, (*path, key))
    else:
        origins.pop(path, None)
