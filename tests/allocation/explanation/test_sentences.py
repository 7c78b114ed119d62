"""The sentences of reasons, word by word."""

from __future__ import annotations

import pytest

from apps.allocation.engine import decide
from apps.allocation.engine.model.reasons import Detail, Reason, ReasonCode
from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.explanation.sentences import amount_words, sentence
from tests.allocation.engine.builders import queued, running
from tests.allocation.engine.test_reasons import CASES, snapshot
from tests.allocation.explanation.plain_names import PlainNames


@pytest.mark.parametrize(("blocked", "freed", "want"), CASES)
def test_every_reason_is_a_sentence(
    blocked: Snapshot,
    freed: Snapshot,
    want: ReasonCode,
) -> None:
    del freed, want
    for wait in decide(blocked).waiting:
        for reason in wait.reasons:
            words = sentence(reason, PlainNames())

            assert words.text.endswith(".")
            assert words.help.endswith(".")
            assert "None" not in words.text


def test_a_full_pool_says_how_much_is_needed_and_free() -> None:
    plan = decide(snapshot(queued("t1", "team", "p4"), running("r", "team", "p1", "a")))

    words = sentence(plan.waiting[0].reasons[0], PlainNames())

    want = "There is not enough free capacity: pool a has 3 GPUs free of the 4 GPUs needed."
    assert words.text == want


def test_a_protected_reason_says_when() -> None:
    reason = Reason(
        ReasonCode.PROTECTED, (Detail(pool="a", tasks=("x", "y"), until_us=90 * 1_000_000),)
    )

    words = sentence(reason, PlainNames(), now_us=0)

    assert "2 tasks" in words.text
    assert "in 2 min" in words.text


@pytest.mark.parametrize(
    ("key", "milli", "want"),
    [
        pytest.param("gpu", 500, "0.5 GPU", id="half a GPU"),
        pytest.param("gpu", 1000, "1 GPU", id="one GPU"),
        pytest.param("gpu", 8000, "8 GPUs", id="many GPUs"),
        pytest.param("gpu", 0, "0 GPUs", id="none"),
        pytest.param("memory_mb", 2_048_000, "2048 MB of memory", id="memory"),
        pytest.param("license", 1000, "1 license", id="a key of one's own"),
    ],
)
def test_amounts_are_written_as_people_say_them(key: str, milli: int, want: str) -> None:
    assert amount_words(key, milli) == want


def test_a_sentence_names_few_pools_and_counts_the_rest() -> None:
    reason = Reason(ReasonCode.NO_SERVER, tuple(Detail(pool=name) for name in "abcde"))

    words = sentence(reason, PlainNames())

    assert words.text.startswith("Nothing serves pool a, pool b and 3 more pools:")


@pytest.mark.parametrize(
    ("code", "want"),
    [
        pytest.param(
            ReasonCode.NEEDS_RESERVATION,
            "The task may not be preempted and needs 4 GPUs, more than the 2 GPUs reserved for "
            "policy dev.",
            id="not preemptible",
        ),
        pytest.param(
            ReasonCode.OVER_QUOTA_NOT_ALLOWED,
            "The task needs 4 GPUs, more than the 2 GPUs reserved for policy dev, and this queue "
            "takes no over-quota work.",
            id="nothing over quota",
        ),
    ],
)
def test_a_reservation_that_is_too_small_is_not_said_to_be_used_up(
    code: ReasonCode, want: str
) -> None:
    detail = Detail(policy="dev", key="gpu", usage=0, limit=2000, needed=4000)

    assert sentence(Reason(code, (detail,)), PlainNames()).text == want


def test_a_task_that_may_exceed_the_limit_learns_why_it_counts_as_over_quota() -> None:
    words = sentence(Reason(ReasonCode.OVER_QUOTA_NOT_ALLOWED), PlainNames())

    assert words.text == (
        "Its owner may exceed the limit of the policy, so this task always counts as over quota, "
        "and the queue takes no over-quota work."
    )


def test_work_that_may_never_be_stopped_again_gives_no_hope_of_it() -> None:
    words = sentence(Reason(ReasonCode.PROTECTED, (Detail(pool="a", tasks=("x",)),)), PlainNames())

    assert words.text.endswith("but the task there may not be stopped again.")
    assert words.help.endswith("as soon as enough of that work ends.")
