"""Whatever a node answers is decoded into what can be stored, or refused as malformed."""

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.execution.protocol.answers import (
    InstallAnswer,
    LaunchAnswer,
    MalformedAnswer,
    NodeInventory,
    PullAnswer,
    Refusal,
    StopAnswer,
    SyncReport,
    decode,
    decode_installed,
)
from apps.execution.protocol.bounds import ANSWER_BYTES, storable
from apps.execution.transport.base import ExchangeFailed
from tests.execution.protocol.test_versions import FIRST_VERSION, HEAD

AROUND = json.loads(HEAD + "null}")
HOSTILE = st.one_of(
    st.text(),
    st.sampled_from(["\0", "a\0b", "\ud800", "\udc80x", "\\u0000", "\\\ud800", "x" * 100_000]),
    st.sampled_from([-1, 2**31, 2**53, 2**63, 2**64, 10**400, -(2**63) - 1]),
    st.floats(),
    st.sampled_from([None, True, [], {}, [[]], {"task_id": "\0"}]),
    st.lists(st.integers(), max_size=3),
)


def places_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, the deepest last."""
    if isinstance(value, dict):
        items: list[tuple[Any, Any]] = list(value.items())
    else:
        items = list(enumerate(value)) if isinstance(value, list) else []
    return [path, *(place for key, one in items for place in places_of(one, (*path, key)))]


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    key, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[key] = changed(value[key], tuple(rest), new)
    return copy


def assert_storable(value: Any) -> None:
    """As PostgreSQL's columns and JSON have it."""
    if isinstance(value, str):
        assert "\0" not in value
        value.encode()
    elif isinstance(value, float):
        assert math.isfinite(value)
    elif isinstance(value, int):
        assert -(2**63) <= value < 2**63
    elif isinstance(value, dict):
        for key, one in value.items():
            assert_storable(key)
            assert_storable(one)
    elif isinstance(value, list | tuple):
        for one in value:
            assert_storable(one)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_an_answer_is_storable_or_malformed(data: st.DataObject) -> None:
    kind, answer = data.draw(st.sampled_from(FIRST_VERSION))
    envelope = AROUND | {"answer": json.loads(answer)}
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(places_of(envelope)))
        envelope = changed(envelope, place, data.draw(HOSTILE))
    try:
        clocks, found = decode(json.dumps(envelope).encode(), kind)
        answered = [msgspec.to_builtins(clocks), msgspec.to_builtins(found) | {"serial": 0}]
    except MalformedAnswer as error:
        answered = [str(error)]

    assert_storable(answered)


@settings(max_examples=200, deadline=None)
@given(st.binary())
def test_bytes_are_malformed_at_most(content: bytes) -> None:
    for ask in (lambda: decode(content, SyncReport), lambda: decode_installed(content)):
        with pytest.raises(MalformedAnswer):
            ask()


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.sampled_from(["\\", "u", "d800", "dc00", "0000", "\0", "\ud800", "\udc00", "é"]))
)
def test_only_what_cannot_be_stored_is_replaced(parts: list[str]) -> None:
    words = "".join(parts)
    # As everybody reads pairs of halves.
    pairs = words.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    assert json.loads(storable(json.dumps(words).encode())) == pairs.replace(
        "\0", "\N{REPLACEMENT CHARACTER}"
    )


@pytest.mark.parametrize("kind", [SyncReport, NodeInventory, PullAnswer, LaunchAnswer, StopAnswer])
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("[" * 100_000 + "]" * 100_000, id="deep"),
        pytest.param('{"members": ' + "[" * 100_000, id="deep and cut"),
        pytest.param('{"state": "' + "x" * 300_000 + '"}', id="long"),
        pytest.param("9" * 10_000, id="a long number"),
    ],
)
def test_what_no_helper_says_is_malformed(kind: type, answer: str) -> None:
    with pytest.raises(MalformedAnswer):
        decode((HEAD + answer + "}").encode(), kind)


def test_an_answer_that_says_little_may_not_be_long() -> None:
    content = (HEAD + '{"state": "absent"}}').encode()

    with pytest.raises(MalformedAnswer, match="262144 are the most"):
        decode(content.ljust(300_000), StopAnswer)
    with pytest.raises(MalformedAnswer, match="the most"):
        decode(b" " * (ANSWER_BYTES + 1), SyncReport)


def test_a_member_that_cannot_be_read_leaves_the_others() -> None:
    good = {
        "task_id": "t1", "generation": 1, "rank": 0, "state": "running", "is_stop_asked": False,
    }  # fmt: skip
    bad = good | {"task_id": "t2", "state": "exited", "exit_code": 2**40}
    report = {"version": "v", "members": [bad, good], "logs": []}

    _, found = decode(json.dumps(AROUND | {"answer": report}).encode(), SyncReport)

    assert isinstance(found, SyncReport)
    assert [one.task_id for one in found.members] == ["t1"]
    (unreadable,) = found.unreadable
    assert (unreadable.member.task_id, unreadable.has_ended) == ("t2", True)
    assert "exit_code" in unreadable.problem


@pytest.mark.parametrize("bad", [(), (0,), (1,), (0, 1)], ids=["none", "first", "second", "both"])
def test_a_member_that_is_named_twice_is_malformed(bad: tuple[int, ...]) -> None:
    member = {"task_id": "t1", "generation": 1, "rank": 0, "state": "running"}
    one = member | {"is_stop_asked": False}
    members = [member if at in bad else one for at in range(2)]
    report = {"version": "v", "members": members, "logs": []}

    with pytest.raises(MalformedAnswer, match="a member is there twice"):
        decode(json.dumps(AROUND | {"answer": report}).encode(), SyncReport)


def test_a_report_of_too_many_members_is_malformed() -> None:
    member = {
        "task_id": "t", "generation": 1, "rank": 0, "state": "running", "is_stop_asked": False,
    }  # fmt: skip
    report = {"version": "v", "members": [member] * 10_001, "logs": []}

    with pytest.raises(MalformedAnswer, match="10001 members"):
        decode(json.dumps(AROUND | {"answer": report}).encode(), SyncReport)


def test_a_helper_is_in_a_folder_that_can_be_asked_for() -> None:
    fine = decode_installed(b'{"home": "/var/lib/rpm/x", "helper": "0f"}')

    assert fine == InstallAnswer("/var/lib/rpm/x", "0f")
    for home in ("/a b", "relative", "/x\n", "/" + "x" * 500, "/\0"):
        with pytest.raises(MalformedAnswer):
            decode_installed(json.dumps({"home": home, "helper": "0f"}).encode())


def test_a_refusal_is_of_a_length_that_is_kept() -> None:
    answer = AROUND | {"refusal": {"code": "late", "detail": "a\0" + "x" * 100}}
    _, found = decode(json.dumps(answer).encode(), StopAnswer)

    assert isinstance(found, Refusal)
    assert found.detail.startswith("a\N{REPLACEMENT CHARACTER}")


def test_what_a_helper_prints_as_it_fails_can_be_stored() -> None:
    words = str(ExchangeFailed("the helper ended with code 1: \0\udc80" + "x" * 5000))

    assert_storable(words)
    assert len(words) == 1000
