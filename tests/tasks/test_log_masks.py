"""Secrets are masked in logs, wherever the pieces are cut."""

from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.tasks import log_masks
from apps.tasks.log_masks import LEAST_BYTES, MOST_BYTES, mask_piece, needles_of

SECRET = "correct horse battery"
NEEDLES = needles_of([SECRET])


def whole(pieces: list[bytes], needles: tuple[bytes, ...] = NEEDLES) -> bytes:
    """The log as it is stored, piece after piece."""
    stored = b""
    for piece in pieces:
        end = stored[-MOST_BYTES:]
        before, hidden = mask_piece(end, piece, needles)
        stored = stored[: len(stored) - len(end)] + before + hidden
    return stored


def test_a_secret_is_masked_and_the_rest_is_left() -> None:
    assert whole([b"password=correct horse battery\n"]) == b"password=" + b"*" * 21 + b"\n"


@given(st.lists(st.integers(0, 60), max_size=8))
def test_it_is_masked_wherever_the_log_is_cut(cuts: list[int]) -> None:
    text = f"before {SECRET}, after {SECRET}".encode()
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(places)]

    stored = whole(pieces)

    assert len(stored) == len(text)
    assert stored == b"before " + b"*" * 21 + b", after " + b"*" * 21


@pytest.mark.parametrize("most", [log_masks.MOST_NEEDLES, 0])
@given(
    secrets=st.lists(st.text("ab", min_size=4, max_size=40), min_size=1, max_size=4),
    pieces=st.lists(
        st.binary(max_size=0) | st.text("ab*", max_size=9).map(str.encode), max_size=30
    ),
)
def test_of_no_secret_a_byte_is_left_however_many_pieces_it_has(
    most: int, secrets: list[str], pieces: list[bytes]
) -> None:
    written = b"".join(pieces)

    with patch.object(log_masks, "MOST_NEEDLES", most):
        stored = whole(pieces, needles_of(secrets))

    assert len(stored) == len(written)
    for secret in (one.encode() for one in secrets):
        for at in range(len(written)):
            if written.startswith(secret, at):
                assert set(stored[at : at + len(secret)]) == {ord("*")}


@given(st.integers(LEAST_BYTES, 20))
def test_its_beginning_is_not_shown_while_the_rest_is_on_its_way(cut: int) -> None:
    stored = whole([b"x " + SECRET.encode()[:cut]])

    assert stored == b"x " + b"*" * cut


def test_each_line_of_a_longer_secret_is_masked() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQ\n-----END KEY-----\n"

    stored = whole([b"| MIIEvQIBADANBg |\n| kqhkiG9w0BAQ |"], needles_of([key]))

    assert stored == b"| ************** |\n| ************ |"


@pytest.mark.parametrize("size", [1024, 1025, 5000])
def test_a_very_long_secret_is_masked(size: int) -> None:
    value = "".join(chr(33 + index % 90) for index in range(size))

    stored = whole([b"a", value[:700].encode(), value[700:].encode(), b"\n"], needles_of([value]))

    assert stored == b"a" + b"*" * size + b"\n"


def test_values_of_one_or_two_signs_would_blot_out_the_log() -> None:
    assert needles_of(["1", "on", "", "\n"]) == ()


def test_what_is_looked_for_is_bounded_and_the_work_at_each_byte_with_it() -> None:
    alike = needles_of("a" * 1000 for _ in range(100))
    longer = needles_of(["".join(chr(33 + index % 90) for index in range(100_000))])

    assert alike == (b"a" * MOST_BYTES,)
    assert {len(one) for one in longer} == {MOST_BYTES}
    assert whole([b"a" * 200_000], alike) == b"*" * 200_000


def test_a_part_at_the_end_of_a_value_is_as_long_as_the_others() -> None:
    value = f"{'x' * MOST_BYTES}2026"

    assert whole([f"{value} in 2026".encode()], needles_of([value])) == (
        b"*" * len(value) + b" in 2026"
    )


def test_behind_stars_no_more_secrets_are_tried_than_the_bound() -> None:
    few = needles_of(f"{number:08}" for number in range(log_masks.MOST_NEEDLES))
    many = (*few, b"one more")

    with patch.object(log_masks, "_mask_across") as tried:
        mask_piece(b"x*", b"17\n", few)
        assert tried.call_count == len(few)
        tried.reset_mock()
        # Whatever may go on is masked up to the end of the line.
        assert mask_piece(b"x*", b"17\n17", many) == (b"x*", b"**\n17")
        assert tried.call_count == 0
