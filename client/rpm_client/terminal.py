"""Text of the server and of tasks without control sequences of terminals.

The same grammar as `apps/core/terminal.py`, ECMA-48; a test holds the two against each other.
"""

import re

_STRING = r"(?:\x1b[PX\]^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
_CONTROL = r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
_ESCAPE = r"\x1b[ -/]*[0-~]?"
_SIGN = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
_SEQUENCE = re.compile(f"{_STRING}|{_CONTROL}|{_ESCAPE}|{_SIGN}")


def plain(text: str) -> str:
    """The text without control sequences and characters; tabulators and line ends stay."""
    return _SEQUENCE.sub("", text)
