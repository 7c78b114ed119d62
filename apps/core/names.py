"""Names that are shown to others: what they may be made of, and what they look like."""

import re
import unicodedata

# Letters, digits and signs that are taken for Latin letters, beyond what their own names say.
_TAKEN_FOR = str.maketrans(
    "\u0430\u03b1\u0251\u0501\u043c\u0438\u0456\u03b9\u01311l|\u03b7\u0578\u043f\u0455\u057d"
    "\u0435\u03b5\u0451\u0433\u051b5@\u03c5\u028c\u2200\u2203",
    "aaadmniiiiiinnnsueeerqsauaae",
)
# Two letters that are read as one, an l being an i by then.
_PAIRS = (("rn", "m"), ("ci", "d"))
# "LATIN SMALL LETTER DOTLESS I", "LATIN LETTER SMALL CAPITAL A", "... TURNED A", "D WITH STROKE".
_LATIN = re.compile(r"LATIN (?:[A-Z]{2,} )*LETTER (?:[A-Z]{2,} )*([A-Z])(?: |$)")
# Scripts that one language writes together.
_TOGETHER = (
    {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "LATIN"},
    {"CJK", "BOPOMOFO", "LATIN"},
    {"CJK", "HANGUL", "LATIN"},
)
# Control characters, format characters such as those that turn the direction of a text, halves of
# pairs, and what ends a line.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def name_problem(name: str) -> str:
    """What is wrong with a name that others read; empty for nothing.

    Characters that cannot be seen change how the rest is read, and letters of several scripts look
    like those of one.
    """
    if has_unseen(name):
        return "holds a character that cannot be seen: type it again"
    scripts = {_script(one) for one in unicodedata.normalize("NFKC", name) if one.isalpha()}
    if len(scripts) > 1 and not any(scripts <= together for together in _TOGETHER):
        return "mixes letters of several scripts: use those of one"
    return ""


def has_unseen(name: str) -> bool:
    """Whether a name holds control or format characters, or the end of a line."""
    return any(unicodedata.category(one) in _UNSEEN for one in name)


def look_of(name: str) -> str:
    """What a hurried reader sees: one case, without signs and accents, look-alikes as one."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold())
    letters = "".join(map(_latin, plain.translate(_TAKEN_FOR)))
    seen = "".join(letter for letter in letters.translate(_TAKEN_FOR) if letter.isalnum())
    for pair, one in _PAIRS:
        seen = seen.replace(pair, one)
    return seen


def _script(letter: str) -> str:
    """The first word of its name: LATIN, CYRILLIC, CHEROKEE, CJK."""
    return unicodedata.name(letter, "?").partition(" ")[0]


def _latin(letter: str) -> str:
    found = _LATIN.match(unicodedata.name(letter, ""))
    return found[1].lower() if found else letter
