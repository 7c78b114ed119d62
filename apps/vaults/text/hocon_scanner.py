"""The smallest parts of a text in HOCON: blanks, texts, keys, substitutions."""

import json
import re

from apps.vaults.text.bounds import BadText, bad_text
from apps.vaults.text.hocon_tree import HoconReference, HoconText

_BLANK = re.compile(r"[^\S\n]+")
_COMMENT = re.compile(r"(?://|#)[^\n]*")
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"')
# Of more than three quotes at the end, the last three end it.
_TRIPLE = re.compile(r'""".*?""""*', re.DOTALL)
# Ends before characters that have a meaning, before blanks, and before a comment.
_BARE = re.compile(r'(?:(?!//)[^\s$"{}\[\]:=,+#`^?!@*&\\])+')
_KEY_PART = re.compile(r'(?:(?!//)[^\s$"{}\[\]:=,+#`^?!@*&\\.])+')
_INCLUDE = re.compile(r"include(?=[\s\"(])(?!\s*(?:[:={.]|\+=))")


class HoconScanner:
    """Reads part after part; `at` is the current place."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def bad(self, problem: str, at: int | None = None) -> BadText:
        """An error at the current place."""
        return bad_text(self.text, self.at if at is None else at, problem)

    def char(self) -> str:
        """The next character; empty at the end."""
        return self.text[self.at : self.at + 1]

    def blanks(self) -> str:
        """Blanks within a line."""
        return self._taken(_BLANK)

    def gap(self, *, commas: bool = False) -> None:
        """Blanks, line ends and comments; with `commas` one comma among them."""
        while True:
            before = self.at
            self.blanks()
            self._taken(_COMMENT)
            if self.char() == "\n":
                self.at += 1
            elif commas and self.char() == ",":
                self.at, commas = self.at + 1, False
            if self.at == before:
                return

    def is_end(self) -> bool:
        """Whether a value ends here."""
        is_comment = self.char() == "#" or self.text.startswith("//", self.at)
        return is_comment or self.char() in {"", "\n", ",", "}", "]"}

    def refuse_include(self) -> None:
        """Refuse `include`: other files and addresses are never read."""
        if _INCLUDE.match(self.text, self.at):
            raise self.bad("include is not supported: copy its content here")

    def key(self) -> tuple[str, ...]:
        """A key such as `a.b."c.d"`, as its parts."""
        path = [self._key_part()]
        while self.char() == ".":
            self.at += 1
            path.append(self._key_part())
        return tuple(path)

    def _key_part(self) -> str:
        """One part, which may hold several bare words: `a b.c` has the part `a b`."""
        words = ""
        while True:
            if self.char() == '"':
                words += self.quoted().text
            else:
                bare = self._taken(_KEY_PART)
                words += bare
                if not bare:
                    break
            before, blanks = self.at, self.blanks()
            if blanks and not _KEY_PART.match(self.text, self.at):
                self.at = before
                break
            words += blanks
        if not words and self.text[self.at - 1 : self.at] != '"':
            raise self.bad("a key is expected here")
        return words

    def quoted(self) -> HoconText:
        """A text in quotes, or in three of them."""
        at = self.at
        if self.text.startswith('"""', at):
            triple = self._taken(_TRIPLE)
            if not triple:
                raise self.bad('the text that begins here with """ never ends')
            return HoconText(triple[3:-3], is_quoted=True)
        quoted = self._taken(_QUOTED)
        if not quoted:
            raise self.bad("the text that begins here never ends on its line")
        try:
            text: str = json.loads(quoted)
            text.encode()
        except ValueError:
            raise self.bad(
                "holds an escape or a control character that is not allowed", at
            ) from None
        return HoconText(text, is_quoted=True)

    def bare(self) -> HoconText | None:
        """A text without quotes, up to the next blank or character that has a meaning."""
        words = self._taken(_BARE)
        return HoconText(words) if words else None

    def reference(self) -> HoconReference:
        """`${path}` or `${?path}`."""
        at = self.at
        if not self.text.startswith("${", at):
            raise self.bad("a dollar sign begins a substitution ${path}: put the text into quotes")
        self.at += 2
        is_optional = self.char() == "?"
        self.at += is_optional
        self.blanks()
        path = self.key()
        self.blanks()
        if self.char() != "}":
            raise self.bad("the substitution must end here with }")
        self.at += 1
        return HoconReference(path, is_optional, at)

    def _taken(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found[0]
