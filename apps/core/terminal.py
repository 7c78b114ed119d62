"""What programs write for terminals: colours as words, every other control sequence left out.

The grammar is that of ECMA-48: an escape sequence is ESC and a final character, a control sequence
(CSI) has parameters before it, and a string (OSC, DCS, SOS, PM, APC) goes on to its terminator.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

_STRING = r"(?:\x1b[PX\]^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
_CONTROL = r"(?:\x1b\[|\x9b)(?P<parameters>[0-?]*)[ -/]*(?P<final>[@-~])?"
_ESCAPE = r"\x1b[ -/]*[0-~]?"
# All other control characters but tabulator, line feed and carriage return.
_SIGN = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
_SEQUENCE = re.compile(f"{_STRING}|{_CONTROL}|{_ESCAPE}|{_SIGN}")
# The beginning of a sequence at the end of a piece: its rest may be in the next one.
_UNFINISHED = re.compile(
    r"(?:\x1b(?:\[[0-?]*[ -/]*|[PX\]^_][^\x07\x1b\x9c]{0,200}\x1b?|[ -/]*)?)\Z"
)
# The 256 colours of xterm end in a cube of 6 x 6 x 6 and 24 greys.
_CUBE = (0, 95, 135, 175, 215, 255)
# Which of the eight colours the brightest channels make: red 1, green 2, blue 4.
_DARK, _GREY = 64, 8


@dataclass(frozen=True, slots=True)
class Style:
    """How text is shown: colours 0 to 15 as terminals number them, None for the usual one."""

    colour: int | None = None
    ground: int | None = None
    is_bold: bool = False
    is_dim: bool = False
    is_italic: bool = False
    is_underlined: bool = False
    is_inverse: bool = False

    @property
    def classes(self) -> str:
        """For a style sheet; empty for plain text."""
        flags = {
            "bold": self.is_bold,
            "dim": self.is_dim,
            "italic": self.is_italic,
            "underline": self.is_underlined,
            "inverse": self.is_inverse,
        }
        names = [name for name, is_set in flags.items() if is_set]
        names += [] if self.colour is None else [f"fg{self.colour}"]
        names += [] if self.ground is None else [f"bg{self.ground}"]
        return " ".join(f"term-{name}" for name in names)


@dataclass(frozen=True, slots=True)
class StyledSpan:
    """A stretch of one line in one style."""

    text: str
    classes: str = ""


Line = tuple[StyledSpan, ...]
PLAIN = Style()
_FLAGS: dict[int, dict[str, bool]] = {
    1: {"is_bold": True},
    2: {"is_dim": True},
    3: {"is_italic": True},
    4: {"is_underlined": True},
    7: {"is_inverse": True},
    21: {"is_underlined": True},
    22: {"is_bold": False, "is_dim": False},
    23: {"is_italic": False},
    24: {"is_underlined": False},
    27: {"is_inverse": False},
}


def plain(text: str) -> str:
    """The text without control sequences and characters; tabulators and line ends stay."""
    return _SEQUENCE.sub("", text)


def whole_length(data: bytes) -> int:
    """How many bytes come before a control sequence that is not complete yet.

    Args:
        data: a piece of a stream whose next piece is still to come.
    """
    found = _UNFINISHED.search(data[-256:].decode("latin-1"))
    return len(data) - (len(found[0]) if found else 0)


def styled_lines(text: str) -> tuple[Line, ...]:
    """The lines as a terminal would show them.

    Of a line that was written over by carriage returns, as progress bars do, the last state stays.
    """
    style = PLAIN
    lines = []
    for written in text.replace("\r\n", "\n").split("\n"):
        spans: list[StyledSpan] = []
        for piece in written.rstrip("\r").split("\r"):
            spans = []
            for content, used in _pieces(piece, style):
                _add(spans, content, used)
                style = used
        lines.append(tuple(spans))
    if lines and not lines[-1]:
        lines.pop()
    return tuple(lines)


def _add(spans: list[StyledSpan], content: str, style: Style) -> None:
    if not content:
        return
    if spans and spans[-1].classes == style.classes:
        content = spans.pop().text + content
    spans.append(StyledSpan(content, style.classes))


def _pieces(line: str, style: Style) -> Iterator[tuple[str, Style]]:
    """Stretches between control sequences, each with its style; the last one may be empty."""
    start = 0
    for found in _SEQUENCE.finditer(line):
        yield line[start : found.start()], style
        start = found.end()
        if found["final"] == "m":
            style = _changed(style, found["parameters"])
    yield line[start:], style


def _changed(style: Style, parameters: str) -> Style:
    """After one Select Graphic Rendition sequence; what is not understood changes nothing."""
    if not re.fullmatch(r"[0-9;:]{0,200}", parameters):
        return style
    codes = [int(code[:4] or 0) for code in re.split("[;:]", parameters)]
    while codes:
        code = codes.pop(0)
        if code == 0:
            style = PLAIN
        elif code in _FLAGS:
            style = replace(style, **_FLAGS[code])
        elif code in {38, 48}:
            style = _with(style, ground=code == 48, colour=_extended(codes))
        else:
            style = _basic(style, code)
    return style


def _basic(style: Style, code: int) -> Style:
    for first, ground, offset in ((30, False, 0), (90, False, 8), (40, True, 0), (100, True, 8)):
        if first <= code < first + 8:
            return _with(style, ground=ground, colour=code - first + offset)
    if code in {39, 49}:
        return _with(style, ground=code == 49, colour=None)
    return style


def _with(style: Style, *, ground: bool, colour: int | None) -> Style:
    return replace(style, ground=colour) if ground else replace(style, colour=colour)


def _extended(codes: list[int]) -> int | None:
    """The colour that 38 or 48 announces, as the nearest of the sixteen; takes its codes away."""
    kind = codes.pop(0) if codes else 0
    if kind == 5 and codes:
        return _of_256(codes.pop(0))
    if kind == 2 and len(codes) >= 3:
        red, green, blue = (codes.pop(0) for _ in range(3))
        return _nearest(red, green, blue)
    codes.clear()
    return None


def _of_256(number: int) -> int | None:
    if number < 16:
        return number
    if number < 232:
        cell = number - 16
        return _nearest(_CUBE[cell // 36], _CUBE[cell // 6 % 6], _CUBE[cell % 6])
    if number < 256:
        grey = 8 + 10 * (number - 232)
        return _nearest(grey, grey, grey)
    return None


def _nearest(red: int, green: int, blue: int) -> int:
    """By hue: a style sheet chooses what can be read on its ground."""
    most, least = max(red, green, blue), min(red, green, blue)
    if most - least < 32:
        return 0 if most < _DARK else (_GREY if most < 160 else 7)
    middle = (most + least) / 2
    return sum(bit for bit, part in ((1, red), (2, green), (4, blue)) if part > middle)
