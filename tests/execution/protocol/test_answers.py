"""Answers are taken as the protocol has them, or not at all."""

import json

import pytest

from apps.execution.protocol import answers, requests
from apps.execution.protocol.answers import MalformedAnswer, Refusal, StopAnswer, decode

AROUND = {"protocol": 1, "helper": "h", "boot_id": "b", "uptime_s": 1.5, "wall_s": 2.5}


def test_an_answer_comes_with_the_clocks_of_the_node() -> None:
    content = json.dumps(AROUND | {"answer": {"state": "absent"}}).encode()

    clocks, answer = decode(content, StopAnswer)

    assert answer == StopAnswer("absent")
    assert (clocks.boot_id, clocks.uptime_s) == ("b", 1.5)


def test_a_refusal_is_an_answer_of_every_verb() -> None:
    refusal = {"code": "late", "detail": "3 s"}

    _, answer = decode(json.dumps(AROUND | {"refusal": refusal}).encode(), StopAnswer)

    assert answer == Refusal("late", "3 s")


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"Welcome to this machine!\n{}", id="a start-up file that prints"),
        pytest.param(json.dumps(AROUND).encode(), id="neither answer nor refusal"),
        pytest.param(
            json.dumps(AROUND | {"answer": {"state": "gone"}}).encode(), id="an unknown state"
        ),
        pytest.param(json.dumps(AROUND | {"answer": {}}).encode(), id="a missing field"),
        pytest.param(
            json.dumps(AROUND | {"refusal": {"code": "x", "detail": ""}}).encode(), id="odd refusal"
        ),
        pytest.param(json.dumps({"answer": {"state": "absent"}}).encode(), id="no clocks"),
    ],
)
def test_anything_else_is_malformed(content: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        decode(content, StopAnswer)


def test_an_answer_beyond_the_bound_is_not_even_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "ANSWER_BYTES", 10)

    with pytest.raises(MalformedAnswer, match="bytes"):
        decode(json.dumps(AROUND).encode(), StopAnswer)


def test_a_request_that_no_node_would_read_is_not_sent() -> None:
    launch = requests.LaunchRequest(
        installation="test0001",
        task_id="t1",
        generation=1,
        boot_id="b",
        not_after_s=1,
        spec=requests.ContainerSpec(runtime="process", command=("x" * requests.REQUEST_BYTES,)),
    )

    with pytest.raises(ValueError, match="bytes"):
        requests.encode(launch)
