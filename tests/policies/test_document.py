"""The configuration document: every problem named by its path, and nothing silently changed."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.core.errors import BadInput
from apps.policies.document import as_data, as_yaml, compare, parse, yaml_data
from tests.policies.documents import documents

POOL = {"name": "a", "capacity": 8}
PROFILE = {"name": "p", "request": 4, "pools": [{"pool": "a"}]}


@pytest.mark.parametrize(
    ("raw", "path", "words"),
    [
        pytest.param([], "body", "object", id="a list is no document"),
        pytest.param({"pool": []}, "pool", "'pools'", id="an unknown field at the top"),
        pytest.param({"schema": 2}, "schema", "must be 1", id="a schema of the future"),
        pytest.param(
            {"settings": {"preemption": "all"}},
            "settings.preemption",
            "none, reclaim",
            id="an unknown choice",
        ),
        pytest.param(
            {"pools": [POOL, {"name": "b", "capacity": {"gpu": -1}}]},
            "pools[1].capacity.gpu",
            "negative",
            id="a negative capacity",
        ),
        pytest.param(
            {"pools": [{"name": "b", "capacity": {"gpu": "0.1234"}}]},
            "pools[0].capacity.gpu",
            "three decimal places",
            id="four places",
        ),
        pytest.param(
            {"pools": [{"name": "b", "capacity": {"gpu": float("nan")}}]},
            "pools[0].capacity.gpu",
            "number",
            id="not a number",
        ),
        pytest.param(
            {"pools": [{"name": "b", "capacity": {"gpu": float("inf")}}]},
            "pools[0].capacity.gpu",
            "number",
            id="infinity",
        ),
        pytest.param(
            {"pools": [{"name": "b", "capacity": {"gpu": True}}]},
            "pools[0].capacity.gpu",
            "number",
            id="a truth value is no amount",
        ),
        pytest.param(
            {"pools": [POOL], "profiles": [{**PROFILE, "request": {"gpus": 1}}]},
            "profiles[0].request.gpus",
            "'gpu'",
            id="an unknown key with the nearest known one",
        ),
        pytest.param(
            {"pools": [POOL], "profiles": [{**PROFILE, "request": 1.5}]},
            "profiles[0].request.gpu",
            "fraction below 1",
            id="one and a half GPUs",
        ),
        pytest.param({"pools": [{"name": " "}]}, "pools[0].name", "empty", id="an empty name"),
        pytest.param(
            {"pools": [{"name": "a\x00b"}]}, "pools[0].name", "control", id="a NUL in a name"
        ),
        pytest.param(
            {"pools": [{"name": "a\u3164"}]}, "pools[0].name", "be seen", id="a filler in a name"
        ),
        pytest.param(
            {"pools": [{"name": "a\ud800"}]}, "pools[0].name", "half", id="half of a character"
        ),
        pytest.param(
            {"pools": [{"name": "x" * 121}]}, "pools[0].name", "120", id="a name that is too long"
        ),
        pytest.param(
            {"pools": [{"name": "a", "key": "7"}]}, "pools[0].key", "UUID", id="a key of its own"
        ),
        pytest.param(
            {"pools": [POOL], "profiles": [{**PROFILE, "pools": [{"pool": "ab"}]}]},
            "profiles[0].pools[0].pool",
            "did you mean 'a'",
            id="a link to nowhere",
        ),
        pytest.param(
            {"pools": [POOL], "profiles": [{**PROFILE, "pools": [{"pool": "a"}, {"pool": "A"}]}]},
            "profiles[0].pools[1].pool",
            "twice",
            id="a pool linked twice",
        ),
        pytest.param(
            {"pools": [{**POOL, "profiles": ["p"]}]},
            "pools[0].profiles[0]",
            "no profile that links",
            id="an order of profiles that do not link the pool",
        ),
        pytest.param(
            {"pools": [POOL], "profiles": [{**PROFILE, "replicas": 0}]},
            "profiles[0].replicas",
            ">= 1",
            id="a task without members",
        ),
        pytest.param(
            {"pools": [POOL], "profiles": [{**PROFILE, "is_dynamic": True, "request_min": 5}]},
            "profiles[0].request_min.gpu",
            "above",
            id="a default below the least",
        ),
        pytest.param(
            {"pools": [POOL], "profiles": [{**PROFILE, "request_max": 5}]},
            "profiles[0].is_dynamic",
            "true",
            id="bounds without dynamic requests",
        ),
        pytest.param(
            {"pools": [{**POOL, "preemption": "always"}]},
            "pools[0].preemption",
            "must be empty, none, reclaim, priority or rank",
            id="a level that there is not",
        ),
        pytest.param(
            {"settings": {"queueing": "lifo"}},
            "settings.queueing",
            "must be best_effort or strict",
            id="an order that there is not",
        ),
    ],
)
def test_bad_input_is_named_by_its_path(raw: Any, path: str, words: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse(raw)

    assert list(refused.value.fields) == [path]
    assert words in refused.value.fields[path]


@pytest.mark.parametrize(
    "name",
    [
        "\u2600\ufe0f fast",
        "\U0001f469\U0001f3fd\u200d\U0001f52c",
        "1\ufe0f\u20e3",
        "\u06af\u200c\u0647",
    ],
)
def test_characters_that_shape_those_next_to_them_are_taken(name: str) -> None:
    document = parse(
        {"pools": [POOL | {"name": name}], "profiles": [PROFILE | {"name": name, "pools": []}]}
    )

    assert (document.pools[0].name, document.profiles[0].name) == (name, name)


def test_a_name_that_two_have_is_reported_for_both() -> None:
    """The user has changed one of them, and sees only that one."""
    with pytest.raises(BadInput) as refused:
        parse({"pools": [POOL, {"name": "A "}]})

    assert refused.value.fields == dict.fromkeys(
        ("pools[0].name", "pools[1].name"), "'A' is the name of two pools: choose another"
    )


def test_several_problems_are_reported_at_once() -> None:
    raw = {"pools": [{"name": "a", "capacity": {"gpu": -1, "cpu": "x"}}]}

    with pytest.raises(BadInput) as refused:
        parse(raw)

    assert set(refused.value.fields) == {"pools[0].capacity.gpu", "pools[0].capacity.cpu"}


def test_what_an_order_leaves_out_stands_last() -> None:
    raw = {
        "pools": [{**POOL, "profiles": ["second"]}],
        "profiles": [
            {"name": "first", "pools": [{"pool": "A"}]},
            {"name": "second", "pools": [{"pool": "a", "name": "link"}]},
        ],
    }

    document = parse(raw)

    assert document.pools[0].profiles == ("second", "first")
    assert document.profiles[0].pools[0].pool == "a"
    assert document.profiles[0].pools[0].name == "A"


@given(documents())
def test_what_is_exported_is_read_back_unchanged(raw: dict[str, Any]) -> None:
    document = parse(raw)

    assert parse(as_data(document)) == document
    assert parse(yaml_data(as_yaml(document))) == document


@given(documents(), documents())
def test_comparing_finds_a_difference_exactly_where_there_is_one(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    before, after = parse(one), parse(other)

    assert compare(before, before) == []
    assert (compare(before, after) == []) == (as_data(before) == as_data(after))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &x 1\nb: *x", "aliases are not allowed. Line 2, column 4."),
        ("a: [", "This is not YAML"),
        ("\x00", "This is not YAML"),
        ("- " * 5000, "nested more than 20 levels deep"),
        ("[" * 200_000, "nested more than 20 levels deep"),
        ("pools: !!bool xyz", "type tag:yaml.org,2002:bool is not allowed. Line 1, column 8."),
        ('pools: !!int ""', "not allowed"),
        ("pools: !!timestamp foo", "not allowed"),
        ('pools: !!float ""', "not allowed"),
        ("pools:\n- capacity:\n    ? 0x" + "f" * 6000 + "\n    : 1", "key must be text"),
        ("pools: 1" + "0" * 6000, "This is not YAML"),
        ("pools: []\nprofiles: []\npools: []", "Key 'pools' occurs twice. Line 3, column 1."),
        ("pools: [{name: a, capacity: {gpu: 1, gpu: 2}}]", "Key 'gpu' occurs twice"),
        ("pools: [{<<: {name: a}}]", "<< is not allowed"),
        ("yes: 1", "A key must be text: put it into quotes"),
    ],
)
def test_yaml_that_cannot_be_used_is_refused(text: str, problem: str) -> None:
    with pytest.raises(BadInput, match=f"(?i){re.escape(problem)}"):
        parse(yaml_data(text))


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists))
def test_whatever_is_sent_is_read_or_refused_with_the_name_of_a_field(raw: object) -> None:
    assert _outcome({"pools": raw, "profiles": raw, "settings": raw})


def _outcome(raw: object) -> object:
    """The document's data, or what was refused."""
    try:
        return as_data(parse(raw))
    except BadInput as error:
        return error.fields


def test_a_link_is_one_change_and_not_one_at_either_end() -> None:
    pools = [{"name": "H100", "capacity": 8}, {"name": "A100", "capacity": 8}]
    big, small = {"name": "big", "request": 4}, {"name": "small", "request": 1}
    before = parse(
        {
            "pools": pools,
            "profiles": [
                big | {"pools": [{"pool": "H100"}]},
                small | {"pools": [{"pool": "H100"}]},
            ],
        }
    )
    linked = parse(
        {
            "pools": pools,
            "profiles": [
                big | {"pools": [{"pool": "H100"}, {"pool": "A100"}]},
                small | {"pools": [{"pool": "H100"}]},
            ],
        }
    )
    turned = parse(
        as_data(before) | {"pools": [pools[0] | {"profiles": ["small", "big"]}, pools[1]]}
    )

    assert [str(change) for change in compare(before, linked)] == ["profile big: pools changed"]
    assert [str(change) for change in compare(before, turned)] == ["pool H100: profiles changed"]
