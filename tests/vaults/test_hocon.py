"""Reading HOCON: what the format says, and what it must not do here."""

import time

import pytest

from apps.vaults.text.bounds import TEXT_BYTES, VALUES, BadText
from apps.vaults.text.hocon import read_hocon
from apps.vaults.text.hocon_resolver import SUBSTITUTIONS


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", {}, id="nothing"),
        pytest.param("a = 1\nb : two", {"a": 1, "b": "two"}, id="both signs after a key"),
        pytest.param("{a = 1, b = 2,}", {"a": 1, "b": 2}, id="braces and a comma too many"),
        pytest.param("a.b.c = 1", {"a": {"b": {"c": 1}}}, id="a path is a mapping"),
        pytest.param('"a.b" = 1', {"a.b": 1}, id="a key in quotes is no path"),
        pytest.param("a { x = 1 }\na { y = 2 }", {"a": {"x": 1, "y": 2}}, id="mappings merge"),
        pytest.param("a { x = 1 }\na = 2", {"a": 2}, id="what comes later replaces"),
        pytest.param("a = 1 # one\n// two\nb = 2", {"a": 1, "b": 2}, id="comments"),
        pytest.param("a = [1, 2\n3]", {"a": [1, 2, 3]}, id="lists by comma or line"),
        pytest.param('a = "q\\n\\u00e9"', {"a": "q\né"}, id="escapes"),
        pytest.param('a = """x "y"\nz"""', {"a": 'x "y"\nz'}, id="three quotes"),
        pytest.param('a = """x""""', {"a": 'x"'}, id="of four quotes the last three end it"),
        pytest.param("a = two words  here ", {"a": "two words  here"}, id="blanks within a text"),
        pytest.param("a = 1.10 x", {"a": "1.10 x"}, id="a number within a text stays as it is"),
        pytest.param("a = true\nb = null\nc = -2.5e1", {"a": True, "b": None, "c": -25.0}, id="t"),
        pytest.param("a = ${b} is ${c.d}\nb = 1\nc.d = x", {"a": "1 is x", "b": 1, "c": {"d": "x"}},
                     id="substitutions of the same text"),
        pytest.param("a = [1]\na = ${a} [2]\na += 3", {"a": [1, 2, 3]}, id="adding to what was"),
        pytest.param("a = ${?a} [1]", {"a": [1]}, id="adding to what may not be there"),
        pytest.param("b { x = 1 }\na = ${b} { y = 2 }", {"b": {"x": 1}, "a": {"x": 1, "y": 2}},
                     id="a mapping and more"),
        pytest.param("a { x = 1, y = ${a.x} }", {"a": {"x": 1, "y": 1}}, id="within itself"),
        pytest.param("a = [{x: 1} {y: 2}]", {"a": [{"x": 1, "y": 2}]}, id="mappings in a list"),
        pytest.param("\r\na = 1\r\n", {"a": 1}, id="line ends of Windows"),
        pytest.param("include = 5\ninclude_all = 6", {"include": 5, "include_all": 6}, id="a key"),
    ],
)  # fmt: skip
def test_what_the_format_says_is_read(text: str, want: object) -> None:
    assert read_hocon(text).data == want


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        pytest.param('a = 1\ninclude "b.conf"', 2, 1, "include is not supported", id="a file"),
        pytest.param('a { include file("/etc/passwd") }', 1, 5, "include", id="a path"),
        pytest.param('include url("http://127.0.0.1/")', 1, 1, "include", id="an address"),
        pytest.param('include required(file("x"))', 1, 1, "include", id="a required file"),
        pytest.param("a = ${HOME}", 1, 5, "environment are not read", id="a variable"),
        pytest.param("\na = ${?HOME}", 2, 5, "environment are not read", id="a variable, maybe"),
        pytest.param("a = ${b}\nb = ${a}", 2, 5, "leads back to itself", id="a circle"),
        pytest.param("a = ${b.c}\nb = 1", 1, 5, "is no key", id="below a text"),
        pytest.param("[1]", 1, 1, "a vault is a mapping", id="a list"),
        pytest.param("a", 1, 2, "expected after the key", id="a key alone"),
        pytest.param("a =", 1, 4, "a value is expected", id="no value"),
        pytest.param("a = http://x", 1, 9, "is not allowed", id="a colon without quotes"),
        pytest.param('a = "x', 1, 5, "never ends", id="an open text"),
        pytest.param("a {", 1, 4, "} is missing", id="an open mapping"),
        pytest.param("a = [1", 1, 7, "] is missing", id="an open list"),
        pytest.param("a = {} 1", 1, 8, "only a mapping", id="a mapping next to a text"),
        pytest.param("b = 1\na = {} ${b}", 2, 8, "no mapping", id="no mapping by substitution"),
        pytest.param("a = $b", 1, 5, "put the text into quotes", id="a dollar"),
        pytest.param('a = "\\q"', 1, 5, "an escape", id="an escape that is none"),
        pytest.param("x = ${secrets.A}\nsecrets.A = b", 1, 5, "show a secret", id="a secret shown"),
        pytest.param("secrets = ${x}\nx.A = b", 1, 11, "must be a mapping", id="secrets from afar"),
        pytest.param("secrets {} ${x}\nx.A = b", 1, 12, "by a substitution", id="secrets added"),
        pytest.param("secrets.A = ${x}\nx = b", 1, 13, "one text", id="a secret from afar"),
        pytest.param("secrets { A = [1] }", 1, 15, "one text", id="a list as a secret"),
        pytest.param("secrets.A.B = c", 1, 15, "one text", id="a mapping as a secret"),
        pytest.param("a = " + "[" * 40, 1, 37, "32 levels", id="too deep a list"),
        pytest.param("a" + ".a" * 40 + " = 1", 1, 1, "32 levels", id="too deep a path"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(
    text: str, line: int, column: int, words: str
) -> None:
    with pytest.raises(BadText, match=words) as refused:
        read_hocon(text)

    assert (refused.value.line, refused.value.column) == (line, column)


def test_the_environment_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKY", "leaked-value")

    for text in ("a = ${LEAKY}", "a = ${?LEAKY}", 'a = "${LEAKY}"\nb = $LEAKY'):
        try:
            found = str(read_hocon(text).data)
        except BadText as error:
            found = error.detail
        assert "leaked-value" not in found


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a0 = [1, 1]\n" + "".join(
            f"a{n + 1} = [${{a{n}}}, ${{a{n}}}]\n" for n in range(60)), id="lists of lists"),
        pytest.param("a0 = xxxxxxxx\n" + "".join(
            f"a{n + 1} = ${{a{n}}}${{a{n}}}\n" for n in range(60)), id="texts of texts"),
        pytest.param("m0 { a { x = 1 } }\n" + "".join(
            f"m{n + 1} = {{ a = ${{m{n}}}, b = ${{m{n}}} }}\nm{n + 1} = ${{m{n}}} {{ }}\n"
            for n in range(40)), id="mappings of mappings"),
        pytest.param("".join(f"a{n} = ${{a{n + 1}}}\n" for n in range(5000)) + "a5000 = 1",
                     id="a long way"),
        pytest.param("a = [" + "1, " * 80_000 + "]", id="too many values"),
        pytest.param("[{" * 100_000, id="only openings"),
        pytest.param('"' * 200_000, id="only quotes"),
        pytest.param('a = "' + "\\" * 200_000, id="only backslashes"),
        pytest.param("x" * (TEXT_BYTES + 1), id="too long"),
    ],
)  # fmt: skip
def test_texts_that_want_to_be_huge_are_refused_soon(text: str) -> None:
    began = time.process_time()

    with pytest.raises(BadText):
        read_hocon(text)

    # Ten times what it takes here; minutes would be the fault.
    assert time.process_time() - began < 20


def test_a_text_takes_substitutions_up_to_the_bound() -> None:
    text = "y = v\n" + "".join(f"k{number} = ${{y}}\n" for number in range(SUBSTITUTIONS))

    assert read_hocon(text).data["k1"] == "v"
    with pytest.raises(BadText) as refused:
        read_hocon(text + "last = ${y}")

    assert refused.value.line == SUBSTITUTIONS + 2
    assert set(refused.value.fields) == {"text"}


def test_texts_that_repeat_a_long_one_are_bounded_together() -> None:
    long = f"y = {'v' * 100_000}\n"
    repeated = "".join(f"k{number} = ${{y}}x\n" for number in range(20))

    with pytest.raises(BadText, match="too long") as refused:
        read_hocon(long + repeated)

    assert refused.value.line == 7


def test_a_text_holds_values_up_to_the_bound() -> None:
    # The mapping and the list are values, too.
    most = ", ".join(["1"] * (VALUES - 2))

    assert len(read_hocon(f"a = [{most}]").data["a"]) == VALUES - 2
    with pytest.raises(BadText, match="more than 10000 values"):
        read_hocon(f"a = [{most}, 1]")
