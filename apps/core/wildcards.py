"""Matching names against patterns with `*` and `?`, at a cost that no pattern makes larger."""

from collections.abc import Iterable


class Wildcards:
    """Some patterns, matched together.

    A name is read once, character by character; the bits of a number say which parts of which
    patterns match what was read so far. So the cost is that of the name, whatever the patterns,
    which users write: a regular expression would go back and forth in the name.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        # Bit n of a mask: the part of a pattern before place n matches.
        self._start = self._ends = self._stays = self._any = 0
        chars: dict[str, int] = {}
        bit = 0
        for pattern in patterns:
            self._start |= 1 << bit
            for char in pattern:
                if char == "*":
                    self._stays |= 1 << bit
                    continue
                bit += 1
                if char == "?":
                    self._any |= 1 << bit
                else:
                    chars[char] = chars.get(char, 0) | 1 << bit
            self._ends |= 1 << bit
            bit += 1
        self._next = {char: mask | self._any for char, mask in chars.items()}

    def match(self, name: str) -> bool:
        """Whether one of the patterns matches the whole name; capital letters count."""
        state = self._start
        for char in name:
            state = (state << 1) & self._next.get(char, self._any) | state & self._stays
            if not state:
                return False
        return bool(state & self._ends)
