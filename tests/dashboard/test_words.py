"""Amounts, durations and reasons in words."""

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.allocation.engine.model.reasons import ReasonCode
from apps.allocation.explanation import SUSPENDED, ReaderNames, reasons_now
from apps.dashboard.cards.reasons import explain
from apps.dashboard.cards.words import (
    REASONS,
    duration_text,
    ordinal,
    plural,
)
from apps.policies.models import LiveState
from apps.tasks.selectors.queue_order import QueueExplanation
from tests.people import Example

NAMES = ReaderNames({1: "H100", 2: "Bare Metal"}, {7: "Dev"}, {3: "dev-4xgpu"}, routing=(2, 1))
OTHER_TENANT = ReaderNames({}, {}, {}, routing=(2, 1))
CAPACITY = {
    "code": "capacity",
    "details": [
        {"pool": 2, "key": "gpu", "needed": 4000, "free": 5000, "largest": 3000},
        {"pool": 1, "key": "gpu", "needed": 4000, "free": 8000, "largest": 3000},
    ],
}


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (0, "0 s"),
        (15.9, "15 s"),
        (600, "10 min"),
        (7500, "2 h 05 min"),
        (273_600, "3 d 4 h"),
        (-5, "0 s"),
    ],
)
def test_durations_have_their_two_largest_units(seconds: float, want: str) -> None:
    assert duration_text(seconds) == want


@pytest.mark.parametrize(
    ("number", "want"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (11, "11th"), (22, "22nd")]
)
def test_ordinals(number: int, want: str) -> None:
    assert ordinal(number) == want


def test_one_is_singular() -> None:
    assert (plural(1, "task"), plural(2, "task")) == ("1 task", "2 tasks")


def test_a_block_that_is_too_small_is_named_with_what_each_pool_has() -> None:
    view = explain([CAPACITY], NAMES)

    assert "Bare Metal has 5 GPUs free, but at most 3 GPUs on one node" in view.verdict
    assert [(fit.rank, fit.name, fit.cells) for fit in view.fits] == [
        (1, "Bare Metal", (True, True, True, False)),
        (2, "H100", (True, True, True, False)),
    ]


def test_free_capacity_on_nodes_that_take_nothing_new_is_named() -> None:
    detail = {"pool": 2, "key": "gpu", "needed": 4000, "free": 5000, "largest": 0}

    view = explain([{"code": "capacity", "details": [detail]}], NAMES)

    assert "Bare Metal has 5 GPUs free, but none on a node that takes new tasks" in view.verdict


def test_a_pool_that_no_node_serves_has_its_row_in_routing_order() -> None:
    capacity = {"code": "capacity", "details": CAPACITY["details"][1:]}
    no_server = {"code": "no_server", "details": [{"pool": 2}]}

    view = explain([capacity, no_server], NAMES)
    hidden = explain([capacity, no_server], OTHER_TENANT)

    assert [(fit.rank, fit.name, fit.label) for fit in view.fits] == [
        (1, "Bare Metal", "No healthy node"),
        (2, "H100", "3 of 4 GPUs"),
    ]
    assert [fit.name for fit in hidden.fits] == ["your first pool", "your second pool"]


def test_whoever_may_not_see_a_pool_reads_its_place_and_the_same_numbers() -> None:
    view = explain([CAPACITY], OTHER_TENANT)

    assert [fit.name for fit in view.fits] == ["your first pool", "your second pool"]
    assert "H100" not in str(view)
    assert [fit.free for fit in view.fits] == ["5 GPUs", "8 GPUs"]


@pytest.mark.parametrize(
    ("names", "want"),
    [
        pytest.param(
            NAMES,
            "Dev",
            id="a member",
        ),
        pytest.param(
            OTHER_TENANT,
            "Another team",
            id="of another tenant",
        ),
    ],
)
def test_a_limit_names_the_policy_only_to_those_who_see_it(names: ReaderNames, want: str) -> None:
    detail = {"policy": 7, "key": "gpu", "usage": 8000, "limit": 8000, "needed": 2000}

    view = explain([{"code": "limit", "details": [detail]}], names)

    numbers = "uses 8 GPUs of its limit of 8 GPUs; the task needs another 2 GPUs."
    assert view.verdict == f"{want} {numbers}"


def test_an_equal_task_further_back_waits_for_the_same_and_says_where_it_stands() -> None:
    first = explain([CAPACITY], NAMES)
    third = explain(reasons_now(3, QueueExplanation("", [CAPACITY], 3, is_first=False)), NAMES)

    assert (third.code, third.verdict) == (first.code, first.verdict)
    assert third.numbers == ("It is the 3rd in its queue: 2 tasks come first.",)


def test_the_rest_of_the_reasons_are_sentences_below_the_dominant_one() -> None:
    detail = {"policy": 7, "key": "gpu", "usage": 8000, "limit": 8000, "needed": 2000}

    view = explain([CAPACITY, {"code": "limit", "details": [detail]}], NAMES)

    (other,) = view.others
    assert str(other.word.text) == "Limit"
    assert other.verdict.startswith("Dev uses 8 GPUs of its limit of 8 GPUs")
    assert other.help


def test_the_tasks_that_are_waited_for_are_named_as_far_as_they_may_be() -> None:
    reason = {"code": "draining", "details": [{"pool": 1, "tasks": ["a", "b", "c"]}]}

    named = explain([reason], ReaderNames({}, {}, {}, tasks={"a": "train", "c": "sweep"}))
    hidden = explain([reason], OTHER_TENANT)

    assert named.numbers == ("Waiting for train, sweep and 1 more.",)
    assert hidden.numbers == ()


def test_every_reason_has_a_word_a_colour_and_a_sign() -> None:
    assert set(REASONS) == {code.value for code in ReasonCode} | {SUSPENDED.code}


def test_before_the_first_pass_the_reason_says_that_it_comes() -> None:
    assert explain([], NAMES).verdict == "The next pass decides within seconds."


@pytest.mark.django_db
def test_the_board_says_who_may_reclaim_capacity(root: User, example: Example) -> None:
    LiveState.objects.update(preemption="rank")
    client = Client()
    client.force_login(root)

    page = client.get(reverse("resources")).text

    assert "and better rank among over-quota work" in page
