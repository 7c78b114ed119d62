"""Control sequences: colours stay, everything else goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.core.terminal import StyledSpan, plain, styled_lines, whole_length

CONTROL = {chr(number) for number in (*range(32), 127, *range(128, 160))} - {"\t", "\n", "\r"}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("\x1b[31mred\x1b[0m text", "red text", id="colours"),
        pytest.param("\x1b[2J\x1b[1;1Hhello", "hello", id="clearing and moving"),
        pytest.param("\x1b]0;a title\x07hello", "hello", id="a title that a bell ends"),
        pytest.param("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link", id="a link"),
        pytest.param("\x1bPq#0;2;0\x1b\\picture", "picture", id="a picture"),
        pytest.param("\x9b31mred\x9d0;title\x9c!", "red!", id="signs of eight bits"),
        pytest.param("a\x08b\x00c\x7fd", "abcd", id="single signs"),
        pytest.param("\x1b(Bplain\x1b=", "plain", id="character sets and modes"),
        pytest.param("10%\r20%\r\nend\tx\n", "10%\r20%\r\nend\tx\n", id="ends of lines stay"),
        pytest.param("cut \x1b[3", "cut ", id="a sequence that is cut"),
        pytest.param("größer 🦀", "größer 🦀", id="all other signs"),
    ],
)
def test_plain_text_holds_no_control_sequence(text: str, want: str) -> None:
    assert plain(text) == want


@given(st.text(st.one_of(st.sampled_from("\x1b[]0;31mP\\\x07\x9b\r\n\x00a"), st.characters())))
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert not CONTROL & set(plain(text))
    shown = "".join(span.text for line in styled_lines(text) for span in line)
    assert not (CONTROL | {"\r", "\n"}) & set(shown)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a\nb\n", (("a", ""), ("b", "")), id="no colours"),
        pytest.param("\x1b[31mbad\x1b[0m\n", (("bad", "term-fg1"),), id="a colour"),
        pytest.param("\x1b[1;92mok\x1b[m", (("ok", "term-bold term-fg10"),), id="bright and bold"),
        pytest.param("\x1b[44mx\x1b[49m", (("x", "term-bg4"),), id="a ground"),
        pytest.param("\x1b[38;5;196mx", (("x", "term-fg1"),), id="one of 256 colours"),
        pytest.param("\x1b[38;2;20;200;30mx", (("x", "term-fg2"),), id="a true colour"),
        pytest.param("\x1b[38:5:12mx", (("x", "term-fg12"),), id="with colons"),
        pytest.param("\x1b[38;5;244mx", (("x", "term-fg8"),), id="a grey"),
        pytest.param("10%\r50%\r100%\n", (("100%", ""),), id="a progress bar"),
        pytest.param("a\r\nb\r\n", (("a", ""), ("b", "")), id="lines of other systems"),
        pytest.param("\x1b[38;9mx", (("x", ""),), id="a colour that nobody knows"),
        pytest.param("\x1b[>4;2mx", (("x", ""),), id="a private sequence"),
    ],
)
def test_lines_have_the_colours_that_were_asked_for(
    text: str, want: tuple[tuple[str, str], ...]
) -> None:
    assert styled_lines(text) == tuple((StyledSpan(*one),) for one in want)


def test_a_style_goes_on_over_the_end_of_a_line_and_is_given_once_per_stretch() -> None:
    lines = styled_lines("\x1b[33ma\x1b[33mb\nc\x1b[0md\n\n")

    assert lines == (
        (StyledSpan("ab", "term-fg3"),),
        (StyledSpan("c", "term-fg3"), StyledSpan("d")),
        (),
    )


@pytest.mark.parametrize(
    ("data", "want"),
    [
        pytest.param(b"all here\n", 9, id="none"),
        pytest.param(b"\x1b[31mred", 8, id="a whole one"),
        pytest.param(b"red\x1b", 3, id="only its first sign"),
        pytest.param(b"red\x1b[3", 3, id="half a colour"),
        pytest.param(b"red\x1b]0;tit", 3, id="half a title"),
        pytest.param(b"\x1b]" + b"x" * 500, 502, id="a string without end is not waited for"),
    ],
)
def test_a_sequence_at_the_end_waits_for_its_rest(data: bytes, want: int) -> None:
    assert whole_length(data) == want


@given(st.lists(st.sampled_from(["\x1b[31m", "\x1b[0m", "word ", "\n", "é"])), st.integers(1, 7))
def test_a_stream_read_in_pieces_is_the_stream_read_at_once(parts: list[str], size: int) -> None:
    content = "".join(parts).encode()
    shown, offset, most = b"", 0, size
    while offset < len(content):
        piece = content[offset : offset + most]
        length = whole_length(piece) if offset + most < len(content) else len(piece)
        if not length:
            # All of it is the beginning of one sequence: the next piece brings more.
            most += size
            continue
        shown += plain(piece[:length].decode("latin-1")).encode("latin-1")
        offset, most = offset + length, size

    assert shown == plain(content.decode("latin-1")).encode("latin-1")
