"""Hiding secrets in what tasks write, piece by piece as it arrives; pure.

A masked text has as many bytes as before: places in a log are counted in bytes.
"""

from collections.abc import Iterable, Sequence

STAR = b"*"
# Shorter ones would blot out half of a log and protect nothing.
LEAST_BYTES = 4
# Of a longer value each part of this size is looked for by itself.
MOST_BYTES = 1024


def needles_of(values: Iterable[str]) -> tuple[bytes, ...]:
    """What to look for: each line of each value, for a file of several lines is often quoted."""
    found = set()
    for value in values:
        for line in value.splitlines():
            found.update(_parts(line.strip().encode()))
    return tuple(sorted(found))


def masked(before: bytes, piece: bytes, needles: Sequence[bytes]) -> tuple[bytes, bytes]:
    """What stands before and the piece that follows it, both without secrets.

    The end of a piece that could be the beginning of a secret is masked as well, from
    `LEAST_BYTES` on: whoever reads along would else see all of it but its last sign. Behind stars
    a sign or two may be masked that were none of a secret: better than the other way round.

    Args:
        before: the end of what was stored, masked already; `MOST_BYTES` are enough.
        piece: the bytes that follow, as the task wrote them.
    """
    text = before + piece
    hidden = bytearray(text)
    for needle in needles:
        _mask_whole(text, hidden, needle)
        _mask_across(text, hidden, needle, border=len(before))
        _mask_beginning(text, hidden, needle)
    return bytes(hidden[: len(before)]), bytes(hidden[len(before) :])


def _parts(line: bytes) -> list[bytes]:
    if len(line) < LEAST_BYTES:
        return []
    parts = [line[at : at + MOST_BYTES] for at in range(0, len(line), MOST_BYTES)]
    if len(parts[-1]) < LEAST_BYTES:
        parts[-1] = line[-LEAST_BYTES:]
    return parts


def _mask_whole(text: bytes, hidden: bytearray, needle: bytes) -> None:
    at = text.find(needle)
    while at >= 0:
        hidden[at : at + len(needle)] = STAR * len(needle)
        at = text.find(needle, at + 1)


def _mask_across(text: bytes, hidden: bytearray, needle: bytes, *, border: int) -> None:
    """Secrets that began before the border, where their beginning is masked already."""
    for at in range(max(0, border - len(needle) + 1), border):
        size = min(len(needle), len(text) - at)
        is_long_enough = size >= LEAST_BYTES and at + size > border
        if is_long_enough and _fits(text, at, needle, border=border, size=size):
            hidden[at : at + size] = STAR * size


def _fits(text: bytes, at: int, needle: bytes, *, border: int, size: int) -> bool:
    if text[border : at + size] != needle[border - at : size]:
        return False
    written = text[at:border]
    return written == needle[: len(written)] or _differs_by_stars(written, needle)


def _differs_by_stars(written: bytes, needle: bytes) -> bool:
    pairs = zip(written, needle, strict=False)
    return all(one in (want, STAR[0]) for one, want in pairs)


def _mask_beginning(text: bytes, hidden: bytearray, needle: bytes) -> None:
    for size in range(min(len(needle) - 1, len(text)), LEAST_BYTES - 1, -1):
        if text.endswith(needle[:size]):
            hidden[len(text) - size :] = STAR * size
            return
