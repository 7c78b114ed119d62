"""JSON and YAML, hidden and restored secrets, and malicious texts."""

import json
import time
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apps.core.keyring import HIDDEN
from apps.vaults.contents import read_valid
from apps.vaults.text.bounds import BadText
from apps.vaults.text.reader import READERS, hide_secrets, put_back_secrets, read, stored_secrets

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
SIGNS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
LEAVES = st.one_of(SIGNS, st.integers(-(10**20), 10**20), st.booleans(), st.none())
TREES: Any = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SIGNS, inner, max_size=3),
    max_leaves=12,
)
DATA = st.dictionaries(SIGNS.filter(lambda key: key != "secrets"), TREES, max_size=4)
SECRETS = st.dictionaries(NAMES, SIGNS.filter(lambda text: text != HIDDEN), max_size=4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param('{"a": 1, "a": 2}', "occurs twice", id="a key twice"),
        pytest.param('{"a": NaN}', "NaN", id="no number"),
        pytest.param('{"a": 1e999}', "not finite", id="an infinite number"),
        pytest.param("[1]", "an object", id="a list"),
        pytest.param('{"a": "\\ud800"}', "surrogate", id="half a sign"),
        pytest.param('{"a": "\\u0000"}', "NUL", id="a NUL"),
        pytest.param('{"a": ' + "9" * 5000 + "}", "number", id="a long number"),
        pytest.param('{"a":' * 3000, "", id="too deep"),
        pytest.param("{a: 1}", "line 1, column 2", id="no JSON"),
    ],
)
def test_json_that_is_not_plain_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadText) as refused:
        read(text, format="json")

    assert words in refused.value.detail


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a: no\nb: true\nc: 2026-01-31\nd: 1:20", {
            "a": "no", "b": True, "c": "2026-01-31", "d": "1:20"}, id="words of YAML 1.2"),
        pytest.param("a:\nb: ~", {"a": None, "b": None}, id="nothing"),
        pytest.param("a: &x {k: 1}\nb:\n  <<: *x\n  l: 2", {
            "a": {"k": 1}, "b": {"k": 1, "l": 2}}, id="an alias, merged"),
        pytest.param("# only a comment", {}, id="empty"),
    ],
)  # fmt: skip
def test_yaml_is_read_as_plain_data(text: str, want: object) -> None:
    assert read(text, format="yaml").data == want


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("a: !!python/object/apply:os.system [ls]", "no type", id="an object"),
        pytest.param("a: !!binary aGk=", "no type", id="bytes"),
        pytest.param("a: !mine x", "no type", id="a type of somebody's own"),
        pytest.param("a: 1\na: 2", "line 2, column 1: key 'a' occurs twice", id="a key twice"),
        pytest.param("8080: x", "a key must be text", id="a number as a key"),
        pytest.param("a: &a [*a]", "back into itself", id="a circle"),
        pytest.param("a: 1\n---\nb: 2", "second document", id="two documents"),
        pytest.param("a: [", "line 2, column 1", id="an open list"),
        pytest.param("secrets: {A: 1}", "put it into quotes", id="a number as a secret"),
        pytest.param("a: &s {A: x}\nsecrets: *s", "cannot repeat", id="secrets by an alias"),
        pytest.param("secrets: {A: &s x}\nb: *s", "cannot repeat", id="a secret shown by an alias"),
        pytest.param("secrets:\n  A: &s x\n  B: *s", "cannot repeat", id="a secret twice"),
        pytest.param("a: &m {A: x}\nsecrets: {<<: *m}", "cannot repeat", id="secrets merged"),
        pytest.param("a0: &a0 [1, 1]\n" + "".join(
            f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(60)), "values", id="a bomb"),
        pytest.param("a0: &a0 {x: 1}\n" + "".join(
            f"a{n + 1}: &a{n + 1} {{<<: [*a{n}, *a{n}], k{n}: 1}}\n" for n in range(400)),
            "<<", id="a bomb of merges"),
        pytest.param("a: &t " + "x" * 100_000 + "\nb: [" + "*t, " * 1000 + "]", "written out",
                     id="a long text many times"),
        pytest.param("a0: &a0 [1]\n" + "".join(
            f"a{n + 1}: &a{n + 1} [*a{n}]\n" for n in range(3000)), "levels", id="depth by alias"),
        pytest.param("[" * 200_000, "levels", id="only openings"),
    ],
)  # fmt: skip
def test_yaml_that_is_not_plain_is_refused_soon(text: str, words: str) -> None:
    began = time.process_time()

    with pytest.raises(BadText) as refused:
        read(text, format="yaml")

    assert words in refused.value.detail
    assert time.process_time() - began < 20


YAML = """\
# The keys of the team.
secrets:
  PLAIN: hunter2 # not hunter3
  BLOCK: |
    several
    lines

  FOLDED: >-
    one
    line
  QUOTED: "with \\"quotes\\""
learning_rate: 0.1
"""
HOCON = """\
secrets { PLAIN = hunter2 # not hunter3
  BLOCK = \"\"\"several
lines
\"\"\" }
secrets.FOLDED = one line
secrets."QUOTED" = "with \\"quotes\\""
learning_rate = 0.1
"""
STORED = {
    "PLAIN": "hunter2",
    "BLOCK": "several\nlines\n",
    "FOLDED": "one line",
    "QUOTED": 'with "quotes"',
}


@pytest.mark.parametrize(("format_", "text"), [("yaml", YAML), ("hocon", HOCON)])
def test_stars_stand_for_secrets_and_comments_stay(format_: str, text: str) -> None:
    found = read(text, format=format_)

    shown = hide_secrets(text, found)

    assert stored_secrets(found.data) == STORED
    assert "# not hunter3" in shown
    for secret in ("hunter2", "several", "one", "with"):
        assert secret not in shown
    assert read(shown, format=format_).data["secrets"] == dict.fromkeys(STORED, HIDDEN)
    again = put_back_secrets(shown, read(shown, format=format_), STORED)
    assert read(again, format=format_).data == found.data


def test_stars_for_what_is_not_stored_are_refused() -> None:
    text = 'secrets.A = "********"'

    with pytest.raises(BadText, match=r"line 1, column 13: secrets\.A marks a hidden value"):
        put_back_secrets(text, read(text, format="hocon"), {})


@given(DATA, SECRETS)
@example({"a": "${b}"}, {"A": "******** "})
def test_json_reads_the_same_in_all_formats_with_secrets_hidden_and_back(
    data: dict[str, Any], secrets: dict[str, str]
) -> None:
    whole = {**data, "secrets": secrets}
    text = json.dumps(whole)

    for format_ in ("json", "hocon"):
        found = read(text, format=format_)
        shown = hide_secrets(text, found)
        seen = read(shown, format=format_)

        assert found.data == whole
        assert seen.data == {**data, "secrets": dict.fromkeys(secrets, HIDDEN)}
        back = put_back_secrets(shown, seen, secrets)
        assert read(back, format=format_).data == whole


PIECES = st.sampled_from(
    ["secrets", "A", ": ", "=", "{", "}", "[", "]", "\n", "\n  ", ",", '"', '"""', "${a}", "${?b}",
     "&x ", "*x", "<<: ", "|\n", "- ", "#", "//", "include ", "+=", ".", "1", "true", "\\", "!t ",
     "é", "'", "a: ", "---\n", "\t"]
)  # fmt: skip


@pytest.mark.parametrize("format_", sorted(READERS))
@settings(max_examples=300)
@given(text=st.lists(PIECES | SIGNS, max_size=40).map("".join))
def test_no_text_crashes_a_reader_or_shows_a_secret(format_: str, text: str) -> None:
    try:
        found = read(text, format=format_)
    except BadText:
        return

    json.dumps(found.data, allow_nan=False)
    seen = read(hide_secrets(text, found), format=format_)
    secrets = found.data.get("secrets") or {}
    if isinstance(secrets, dict):
        assert dict(seen.data) == {**found.data, **_hidden(found.data)}


def _hidden(data: Any) -> dict[str, Any]:
    if "secrets" not in data:
        return {}
    return {"secrets": dict.fromkeys(data["secrets"] or {}, HIDDEN) if data["secrets"] else {}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("environment = 1", "environment must be a mapping", id="no mapping"),
        pytest.param("environment { A-B = 1 }", "is no name of a variable", id="a name"),
        pytest.param("a = 1\nenvironment { A = 1.5 }", "line 2, column 15", id="a fraction"),
        pytest.param('environment { A = "x\\ny" }', "a line break", id="two lines"),
        pytest.param("container { imgae = x }", "did you mean 'image'", id="an unknown key"),
        pytest.param('container { image = "dir:/etc" }', "must be a name such as", id="a folder"),
        pytest.param("container { command = ls }", "a list of texts", id="a command as text"),
        pytest.param("container { working_dir = work }", "absolute path", id="a relative path"),
        pytest.param("secrets { RPM_VAULT = x }", "choose another", id="the name of the file"),
        pytest.param("secrets { A = x }, environment { A_FILE = y }", "as well", id="both"),
    ],
)
def test_our_own_keys_are_checked(text: str, words: str) -> None:
    with pytest.raises(BadText) as refused:
        read_valid(text, format="hocon")

    assert words in refused.value.detail
