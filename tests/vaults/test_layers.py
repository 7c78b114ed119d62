"""Merging of vaults: laws, and the origin of each value."""

import uuid
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from apps.vaults.layers import (
    EVERYTHING,
    Layer,
    ValueOrigin,
    enforced_part,
    merge_layers,
    values_of,
)

KEYS = st.sampled_from(["a", "b", "c"])


def _trees(depth: int) -> Any:
    """Trees in which a key is a mapping in all, or in none: the level says which."""
    leaves = st.integers(0, 99) | st.lists(st.integers(0, 9), max_size=2)
    if depth == 0:
        return st.dictionaries(KEYS, leaves, max_size=3)
    below = st.dictionaries(st.sampled_from(["m", "n"]), _trees(depth - 1), max_size=2)
    return st.tuples(st.dictionaries(KEYS, leaves, max_size=2), below).map(
        lambda pair: {**pair[0], **pair[1]}
    )


ALIKE = _trees(2)
ANY: Any = st.recursive(
    st.dictionaries(KEYS, st.integers(0, 99), max_size=3),
    lambda inner: st.dictionaries(KEYS, inner | st.integers(0, 99), max_size=3),
    max_leaves=10,
)
PATHS = st.lists(st.sampled_from(["a", "b", "a.b", "a.b.c", "c.a", EVERYTHING]), max_size=3)


def _layer(number: int, data: Mapping[str, Any], enforced: list[str] | None = None) -> Layer:
    return Layer(ValueOrigin(uuid.UUID(int=number), f"v{number}", 1), data, tuple(enforced or ()))


def _merge(*trees: Mapping[str, Any]) -> Mapping[str, Any]:
    return merge_layers([_layer(number, tree) for number, tree in enumerate(trees)]).data


@given(ALIKE, ALIKE, ALIKE)
def test_merging_is_associative_where_mappings_meet_mappings(
    low: dict[str, Any], middle: dict[str, Any], high: dict[str, Any]
) -> None:
    whole = _merge(low, middle, high)

    assert whole == _merge(_merge(low, middle), high) == _merge(low, _merge(middle, high))


@given(ANY)
def test_merging_with_nothing_or_itself_changes_nothing(tree: dict[str, Any]) -> None:
    assert _merge(tree) == _merge({}, tree) == _merge(tree, {}) == _merge(tree, tree) == tree


@given(st.lists(st.tuples(ANY, PATHS), max_size=4))
def test_every_value_has_an_origin_that_holds_it(given_: list[tuple[Any, list[str]]]) -> None:
    layers = [_layer(n, data, paths) for n, (data, paths) in enumerate(given_)]

    whole = merge_layers(layers)

    found = {path: value for path, value, _ in values_of(whole)}
    assert found == dict(_leaves(whole.data))
    by_id = {layer.origin.vault_id: layer for layer in layers}
    for path, value, origin in values_of(whole):
        assert _at(by_id[origin.vault_id].data, path) == value


@given(st.lists(st.tuples(ANY, PATHS), min_size=1, max_size=4))
def test_what_is_enforced_wins_whatever_is_laid_over_it(
    given_: list[tuple[Any, list[str]]],
) -> None:
    layers = [_layer(n, data, paths) for n, (data, paths) in enumerate(given_)]

    whole, forced = merge_layers(layers), enforced_part(layers)

    for path, value, origin in values_of(forced):
        assert origin.is_enforced
        if value != {}:
            assert _at(whole.data, path) == value
            assert whole.origins[path] == origin


def test_lists_replace_and_mappings_merge() -> None:
    low = {"a": {"x": [1, 2], "y": 1}, "b": 1}
    high = {"a": {"x": [3]}, "b": {"z": 1}}

    assert _merge(low, high) == {"a": {"x": [3], "y": 1}, "b": {"z": 1}}


def test_an_enforced_entry_of_a_low_vault_beats_a_high_one() -> None:
    low = _layer(1, {"environment": {"PROXY": "ours", "A": "low"}}, ["environment.PROXY"])
    high = _layer(2, {"environment": {"PROXY": "theirs", "A": "high"}})

    whole = merge_layers([low, high])

    assert whole.data == {"environment": {"PROXY": "ours", "A": "high"}}
    assert whole.origins["environment", "PROXY"].is_enforced
    assert whole.origins["environment", "A"].name == "v2"


def test_what_vaults_hold_is_not_changed_by_merging() -> None:
    low, high = {"a": {"b": 1}}, {"a": {"c": 2}}

    merge_layers([_layer(1, low), _layer(2, high, [EVERYTHING])])

    assert (low, high) == ({"a": {"b": 1}}, {"a": {"c": 2}})


def _leaves(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> Any:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _at(tree: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = tree
    for key in path:
        value = value[key]
    return value
