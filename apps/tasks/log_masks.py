"""Masking of secrets in the output of tasks, piece by piece as it arrives; pure.

A masked text has as many bytes as before, because offsets in a log count bytes. The cost is linear
in the text and in the secrets.
"""

from collections.abc import Iterable, Mapping, Sequence

STAR = b"*"
# Shorter values would mask half of a log and protect nothing.
LEAST_BYTES = 4
# Each part of this size of a longer value is searched by itself, which bounds the work at each
# byte of a log.
MOST_BYTES = 32
# After stars each of them is tried. With more secrets, everything that may follow stars is masked.
MOST_NEEDLES = 2000


def needles_of(values: Iterable[str]) -> tuple[bytes, ...]:
    """What to search: each line of each value, because tasks often quote single lines of a file."""
    found = set()
    for value in values:
        for line in value.splitlines():
            found.update(_parts(line.strip().encode()))
    return tuple(sorted(found))


def mask_piece(before: bytes, piece: bytes, needles: Sequence[bytes]) -> tuple[bytes, bytes]:
    """The stored end and the piece that follows it, both without secrets.

    The end of a piece that could be the beginning of a secret is masked as well, from
    `LEAST_BYTES` on: a live reader would otherwise see all of it but its last character. After
    stars a character or two may be masked that belong to no secret.

    Args:
        before: the end of what was stored, masked already; `MOST_BYTES` are enough.
        piece: the bytes that follow, as the task wrote them.
    """
    text = before + piece
    hidden = bytearray(text)
    by_head = _by_head(needles)
    _mask_whole(text, hidden, by_head)
    _mask_beginning(text, hidden, by_head)
    if STAR in before and piece:
        if len(needles) > MOST_NEEDLES:
            _mask_whatever_goes_on(before, piece, hidden, needles)
        else:
            for needle in needles:
                _mask_across(before, piece, hidden, needle)
    return bytes(hidden[: len(before)]), bytes(hidden[len(before) :])


def _parts(line: bytes) -> list[bytes]:
    if len(line) < LEAST_BYTES:
        return []
    starts = range(0, max(1, len(line) - MOST_BYTES + 1), MOST_BYTES)
    # The last one is as long as the others: a few bytes at the end of a value mean nothing alone.
    return [line[at : at + MOST_BYTES] for at in starts] + [line[-MOST_BYTES:]]


def _by_head(needles: Iterable[bytes]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for needle in needles:
        found.setdefault(needle[:LEAST_BYTES], []).append(needle)
    return found


def _mask_whole(text: bytes, hidden: bytearray, by_head: Mapping[bytes, list[bytes]]) -> None:
    wanted = {needle for some in by_head.values() for needle in some}
    sizes = {head: sorted({len(one) for one in some})[::-1] for head, some in by_head.items()}
    for at in range(len(text) - LEAST_BYTES + 1):
        for size in sizes.get(text[at : at + LEAST_BYTES], ()):
            found = text[at : at + size]
            if found in wanted:
                hidden[at : at + size] = STAR * len(found)
                break


def _mask_beginning(text: bytes, hidden: bytearray, by_head: Mapping[bytes, list[bytes]]) -> None:
    for at in range(max(0, len(text) - MOST_BYTES), len(text) - LEAST_BYTES + 1):
        rest = text[at:]
        if any(needle.startswith(rest) for needle in by_head.get(rest[:LEAST_BYTES], ())):
            hidden[at:] = STAR * len(rest)
            return


def _mask_across(before: bytes, piece: bytes, hidden: bytearray, needle: bytes) -> None:
    """Secrets that began before the piece, where their beginning is masked already."""
    first = piece[:1]
    # How much of it comes before the piece.
    size = needle.find(first, 1)
    while 0 < size <= len(before):
        rest = needle[size : size + len(piece)]
        is_long_enough = size + len(rest) >= LEAST_BYTES
        if is_long_enough and piece.startswith(rest) and _fits(before[-size:], needle):
            at = len(before) - size
            hidden[at : at + size + len(rest)] = STAR * (size + len(rest))
        size = needle.find(first, size + 1)


def _mask_whatever_goes_on(
    before: bytes, piece: bytes, hidden: bytearray, needles: Iterable[bytes]
) -> None:
    """Mask what follows the last star, as far as it could belong to some secret.

    That is more than `_mask_across` masks, and never less: a secret continues in
    characters of secrets only, which no line end is, and ends within `MOST_BYTES`.
    """
    text, signs = before + piece, {STAR[0], *b"".join(needles)}
    start = end = before.rfind(STAR) + 1
    most = min(len(text), len(before) + MOST_BYTES)
    while end < most and text[end] in signs:
        end += 1
    if end > len(before):
        hidden[start:end] = STAR * (end - start)


def _fits(written: bytes, needle: bytes) -> bool:
    pairs = zip(written, needle, strict=False)
    return all(one in (want, STAR[0]) for one, want in pairs)
