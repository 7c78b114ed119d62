"""The geometry of bars: what is drawn is what is said."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.dashboard.cards.bars import Gauge, Segment, TaskPhase, TimelineBar, UsageBar, percent

MILLI = st.integers(min_value=0, max_value=10_000_000)


def width(bar: UsageBar) -> float:
    return sum(float(part.width.rstrip("%")) for part in bar.segments)


@pytest.mark.parametrize(
    ("used", "reserved", "limit", "want_segments", "want_mark"),
    [
        pytest.param(
            8000,
            16000,
            32000,
            [("res", "0%", "25%"), ("claim", "25%", "25%")],
            "50%",
            id="below its reservation the rest of it is claimed",
        ),
        pytest.param(
            44000,
            32000,
            64000,
            [("res", "0%", "50%"), ("over", "50%", "18.75%")],
            "50%",
            id="what is beyond the reservation is over quota",
        ),
        pytest.param(
            8000, 0, 8000, [("over", "0%", "100%")], None, id="at the limit with nothing reserved"
        ),
        pytest.param(
            12000,
            0,
            8000,
            [("over", "0%", "66.667%"), ("bad", "66.667%", "33.333%")],
            None,
            id="above a lowered limit the rest is red",
        ),
        pytest.param(0, 0, 8000, [], None, id="nothing is used"),
    ],
)
def test_the_bar_of_a_policy(
    used: int,
    reserved: int,
    limit: int,
    want_segments: list[tuple[str, str, str]],
    want_mark: str | None,
) -> None:
    bar = UsageBar.of(used=used, reserved=reserved, limit=limit)

    assert bar.segments == tuple(Segment(*one) for one in want_segments)
    assert bar.mark == want_mark


def test_without_a_limit_the_bar_is_open() -> None:
    bar = UsageBar.of(used=4000, reserved=8000, limit=None)

    assert bar.is_open
    assert bar.mark == "80%"


def test_the_sentence_names_every_part() -> None:
    bar = UsageBar.of(used=44000, reserved=32000, limit=64000)

    assert bar.label == (
        "44 of 64 GPU in use, 32 within the reservation of 32, 12 over quota, 20 free to the limit"
    )


def test_a_task_that_does_not_fit_into_the_reservation_counts_as_over_quota_whole() -> None:
    bar = UsageBar.of(used=8000, reserved=6000, limit=16000, over_quota=4000)

    assert [(part.kind, part.width) for part in bar.segments] == [("res", "25%"), ("over", "25%")]


@given(used=MILLI, reserved=MILLI, limit=st.none() | MILLI)
def test_a_bar_never_leaves_its_frame(used: int, reserved: int, limit: int | None) -> None:
    if limit is not None and reserved > limit:
        reserved = limit

    assert width(UsageBar.of(used=used, reserved=reserved, limit=limit)) <= 100.01


@given(part=st.integers(min_value=-10, max_value=10**9), whole=st.integers(0, 10**9))
def test_a_percentage_lies_between_nothing_and_everything(part: int, whole: int) -> None:
    assert 0 <= float(percent(part, whole).rstrip("%")) <= 100


def test_the_gauge_shows_what_is_configured_but_missing() -> None:
    gauge = Gauge.of(reserved_usage=40000, over_quota=12000, usable=58000, configured=60000)

    assert (gauge.used, gauge.capacity) == ("52", "60")
    assert gauge.drift_length == "4.82"
    assert gauge.label == "52 of 60 GPU in use, 12 of them over quota, 2 unavailable"


def test_a_timeline_is_proportional() -> None:
    start = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
    hour = timedelta(hours=1)

    line = TimelineBar.of(
        [TaskPhase("wait", start, start + hour), TaskPhase("run", start + hour, start + 4 * hour)],
        flags=[start + 2 * hour],
    )

    assert line is not None
    assert [(part.kind, part.x, part.width) for part in line.segments] == [
        ("wait", "0%", "25%"),
        ("run", "25%", "75%"),
    ]
    assert [(flag.x, flag.at) for flag in line.flags] == [("50%", start + 2 * hour)]
    assert not line.is_growing
    assert line.label == "waiting 08:00 to 09:00, running 09:00 to 12:00"


def test_a_task_that_was_never_enqueued_has_no_timeline() -> None:
    assert TimelineBar.of([], flags=[]) is None
