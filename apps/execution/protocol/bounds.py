"""How much a node may send, and in which characters: every answer of a node is checked here.

A node may be compromised by the time it answers, and what tasks and runtimes write reaches it. So
nothing passes that the database or the pages cannot take.
"""

import re
from typing import Annotated, Final

from msgspec import Meta

# Of a whole answer, the logs of one exchange with it.
ANSWER_BYTES: Final = 32 * 1024 * 1024
MOST_MEMBERS: Final = 10_000
# The helper reads no more of one log in one exchange.
LOG_BYTES: Final = 64 * 1024
PROBLEM_CHARACTERS: Final = 1000

# Of a table's column or a name; of a program's words; of a log's end.
Name = Annotated[str, Meta(max_length=120)]
ShortText = Annotated[str, Meta(max_length=8192)]
LongText = Annotated[str, Meta(max_length=65_536)]
# Comes back to the node, or tells one thing from another.
Token = Annotated[str, Meta(pattern=r"^[\x20-\x7e]{0,64}\Z")]
Signature = Annotated[str, Meta(pattern=r"^[\x21-\x7e]{0,128}\Z")]
TaskId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]{1,64}\Z")]
DeviceUuid = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,119}\Z")]
ImageDigest = Annotated[str, Meta(pattern=r"^(sha256:[0-9a-f]{64})?\Z")]
# Of a column of 32 bits, of one of 64, and what stays exact in every reader of JSON.
Whole = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Code = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
ByteCount = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Seconds = Annotated[float, Meta(ge=0, le=1e10)]
# By a clock that may be wrong.
WallSeconds = Annotated[float, Meta(ge=-1e12, le=1e12)]

# NUL, and halves of pairs: JSON has them, and neither UTF-8 nor PostgreSQL does.
_HIGH, _LOW = rb"[dD][89abAB][0-9a-fA-F]{2}", rb"[dD][c-fC-F][0-9a-fA-F]{2}"
_UNSTORABLE = re.compile(
    rb"\\u(?:0000|" + _HIGH + rb"(?!\\u" + _LOW + rb")|(?<!\\u" + _HIGH + rb"\\u)" + _LOW + rb")"
)


def storable(content: bytes) -> bytes:
    """JSON without the escapes of what cannot be stored; each is replaced by one character."""
    if b"\\u" not in content or b"\0" in content:
        return content
    # A backslash of the text is put aside, so that it begins no escape.
    aside = content.replace(rb"\\", b"\0")
    return _UNSTORABLE.sub(rb"\\ufffd", aside).replace(b"\0", rb"\\")


def plain(words: str, *, most: int = PROBLEM_CHARACTERS) -> str:
    """What went wrong, in characters and of a length that can be stored and shown."""
    shown = words[:most].replace("\0", "\N{REPLACEMENT CHARACTER}")
    return shown.encode("utf-8", "replace").decode()
