"""Merging of vaults, with the origin of each value; pure.

From the lowest to the highest: the owner's vaults, those of groups by rank, and then enforced
entries. Mappings are merged, every other value replaces.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from apps.vaults.text.bounds import Path

# In a list of enforced paths: the whole vault.
EVERYTHING = "*"


@dataclass(frozen=True, slots=True)
class ValueOrigin:
    """The vault a value came from."""

    vault_id: UUID
    name: str
    version: int
    is_personal: bool = False
    is_enforced: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """One vault: its data, and the paths in it that are enforced."""

    origin: ValueOrigin
    data: Mapping[str, Any] = field(repr=False)
    enforced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MergedLayers:
    """The data, and the origin of each value that is not a filled mapping."""

    data: Mapping[str, Any] = field(repr=False)
    origins: Mapping[Path, ValueOrigin]


def merge_layers(layers: Sequence[Layer]) -> MergedLayers:
    """All layers, the first lowest, and above them their enforced entries, in the same order."""
    data: dict[str, Any] = {}
    origins: dict[Path, ValueOrigin] = {}
    for layer in layers:
        _overlay(data, origins, layer.data, layer.origin, ())
    _enforce(data, origins, layers)
    return MergedLayers(data, origins)


def enforced_part(layers: Sequence[Layer]) -> MergedLayers:
    """The enforced entries only."""
    data: dict[str, Any] = {}
    origins: dict[Path, ValueOrigin] = {}
    _enforce(data, origins, layers)
    return MergedLayers(data, origins)


def values_of(merged_data: MergedLayers) -> Iterator[tuple[Path, Any, ValueOrigin]]:
    """Each value with its path and origin, by path."""
    for path, origin in sorted(merged_data.origins.items()):
        value: Any = merged_data.data
        for key in path:
            value = value[key]
        yield path, value, origin


def select_paths(data: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """The part of the data at these paths; missing paths are left out."""
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
            _overlay(found, {}, part, None, ())
    return found


def _enforce(
    data: dict[str, Any], origins: dict[Path, ValueOrigin], layers: Sequence[Layer]
) -> None:
    for layer in layers:
        origin = ValueOrigin(
            layer.origin.vault_id,
            layer.origin.name,
            layer.origin.version,
            layer.origin.is_personal,
            is_enforced=True,
        )
        _overlay(data, origins, select_paths(layer.data, layer.enforced), origin, ())


def _overlay(
    data: dict[str, Any],
    origins: dict[Path, Any],
    above: Mapping[str, Any],
    origin: ValueOrigin | None,
    path: Path,
) -> None:
    """Merge a mapping into the lower one in place; the upper one stays unchanged."""
    for key, value in above.items():
        here = (*path, key)
        if isinstance(value, Mapping) and value:
            below = data.get(key)
            if not isinstance(below, dict):
                data[key] = below = {}
            # Drop the origin of a replaced value, and of a mapping that is not empty any more.
            origins.pop(here, None)
            _overlay(below, origins, value, origin, here)
        elif isinstance(value, Mapping) and isinstance(data.get(key), dict):
            # An empty mapping adds nothing to an existing one.
            continue
        else:
            _forget(origins, data.get(key), here)
            data[key] = {} if isinstance(value, Mapping) else value
            origins[here] = origin


def _forget(origins: dict[Path, Any], value: object, path: Path) -> None:
    """Drop the origins below a replaced value."""
    if isinstance(value, dict) and value:
        for key, below in value.items():
            _forget(origins, below, (*path, key))
    else:
        origins.pop(path, None)
