"""Secrets are masked in logs, wherever the pieces are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.tasks.masking import LEAST_BYTES, masked, needles_of

SECRET = "correct horse battery"
NEEDLES = needles_of([SECRET])


def whole(pieces: list[bytes], needles: tuple[bytes, ...] = NEEDLES) -> bytes:
    """The log as it is stored, piece after piece."""
    stored = b""
    for piece in pieces:
        before, hidden = masked(stored, piece, needles)
        stored = before + hidden
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
