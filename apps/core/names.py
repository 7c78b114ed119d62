"""Checks of names that are shown to others: their characters, and what they look like."""

import re
import unicodedata

# Letters, digits and symbols that look like Latin letters, beyond what their own names say.
_TAKEN_FOR = str.maketrans(
    "\u0430\u03b1\u0251\u0501\u043c\u0438\u0456\u03b9\u01311l|\u01c0\u03b7\u0578\u043f\u0455\u057d"
    "\u0435\u03b5\u0451\u0433\u051b5@\u03c5\u028c\u2200\u2203"
    # Lisu, Cherokee (its small letters fold to capitals) and Canadian syllabics.
    "\ua4ee\ua4ef\ua4d3\ua4f7\ua4df\ua4f2\ua4e0\ua4e2\ua4f4\ua4f0\ua4f1\ua4e3\ua4e4"
    "\u13aa\u13a0\u13e7\u13b7\u13a5\u13c6\u13c1\u13da\u13d5\u13cc\u13ac\u13a1\u13d2"
    "\u15c5\u15e9\u15ea\u15f0\u14f0\u144e\u1515\u144c\u15f4\u1587\u146b",
    "aaadmniiiiiiinnnsueeerqsauaae"
    "aaddminsueerr"
    "addmiinssuerr"
    "aadminsuerq",
)  # fmt: skip
# Two letters that are read as one, an l being an i by then.
_PAIRS = (("rn", "m"), ("ci", "d"))
# "LATIN SMALL LETTER DOTLESS I", "LATIN LETTER SMALL CAPITAL A", "... TURNED A", "D WITH STROKE".
_LATIN = re.compile(r"LATIN (?:[A-Z]{2,} )*LETTER (?:[A-Z]{2,} )*([A-Z])(?: |$)")
# Scripts that one language writes together in a word.
_TOGETHER = (
    {"CJK", "HIRAGANA", "KATAKANA", "LATIN"},
    {"CJK", "BOPOMOFO", "LATIN"},
    {"CJK", "HANGUL", "LATIN"},
)
# Narrower spaces are hardly visible: the text on both sides of them reads as one word.
_WORD_ENDS = " \u00a0\u3000"
# Control characters, format characters such as those that turn the direction of a text, halves of
# pairs, and what ends a line.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Of Unicode's Default_Ignorable_Code_Point what has another category: fillers are letters there.
_IGNORABLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff]"
)
_NON_JOINER, _JOINER = "\u200c", "\u200d"
_EMOJI_STYLES = "\ufe0e\ufe0f"
_KEYCAP = re.compile("[0-9#*]\ufe0f\u20e3")
# Emoji that are no symbols by their category.
_OTHER_EMOJI = "\u203c\u2049\u2139\u3030"
# Scripts that are written with joiners and non-joiners inside words.
_JOINING = frozenset({
    "ARABIC", "SYRIAC", "MONGOLIAN", "DEVANAGARI", "BENGALI", "GURMUKHI", "GUJARATI", "ORIYA",
    "TAMIL", "TELUGU", "KANNADA", "MALAYALAM", "SINHALA", "KHMER", "MYANMAR",
})  # fmt: skip
_VIRAMA = 9


def name_problem(name: str) -> str:
    """What is wrong with a name that others read; empty for nothing.

    Characters that cannot be seen change how the rest is read, and letters of several scripts in
    one word look like those of one. Words in Latin letters may be mixed with words of one other
    script.
    """
    if has_invisible(name):
        return "holds a character that cannot be seen: type it again"
    words = _scripts_of_words(name)
    others = set[str]().union(*words) - {"LATIN"}
    if not all(map(_is_written_together, [*words, others])):
        return "mixes letters of several scripts: use those of one in a word"
    return ""


def has_invisible(name: str) -> bool:
    """Whether a name holds invisible characters, or the end of a line.

    Those that shape the emoji or the letters next to them are visible by their effect.
    """
    plain = _KEYCAP.sub("#", name)
    return any(
        (unicodedata.category(one) in _INVISIBLE or _IGNORABLE.match(one))
        and not _is_shaping(plain[max(at - 2, 0) : at], one, plain[at + 1 : at + 2])
        for at, one in enumerate(plain)
    )


def look_of(name: str) -> str:
    """What a hurried reader sees: one case, no punctuation or accents, look-alikes as one."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold())
    letters = "".join(map(_latin, plain.translate(_TAKEN_FOR)))
    visible = "".join(filter(_is_read, letters.translate(_TAKEN_FOR)))
    for pair, one in _PAIRS:
        visible = visible.replace(pair, one)
    return visible


def _is_read(letter: str) -> bool:
    """Modifier letters look like apostrophes, quotes and stops."""
    return letter.isalnum() and unicodedata.category(letter) != "Lm"


def _is_shaping(before: str, one: str, after: str) -> bool:
    """Whether a variation selector or a joiner changes how its neighbours look."""
    if one in _EMOJI_STYLES:
        return _is_emoji(before[-1:])
    if one not in (_NON_JOINER, _JOINER) or not before:
        return False
    if one == _JOINER and _is_emoji(after):
        return _is_emoji(before.removesuffix("\ufe0f")[-1:])
    script = _joining_script(before[-1])
    ends_in_virama = unicodedata.combining(before[-1]) == _VIRAMA
    return bool(script) and (ends_in_virama or script == _joining_script(after))


def _is_emoji(one: str) -> bool:
    if not one or one.isascii():
        return False
    return one in _OTHER_EMOJI or unicodedata.category(one) in ("So", "Sm", "Sk")


def _joining_script(one: str) -> str:
    """The script of a letter or mark, if it is one with joiners; else empty."""
    if not one or unicodedata.category(one)[0] not in "LM":
        return ""
    script = unicodedata.name(one, "?").partition(" ")[0]
    return script if script in _JOINING else ""


def _scripts_of_words(name: str) -> list[set[str]]:
    """Digits, which stand for letters as well, marks and hardly seen spaces do not end a word."""
    words: list[set[str]] = [set()]
    for one in name:
        if one.isalpha():
            words[-1] |= _script(one)
        elif one in _WORD_ENDS or unicodedata.category(one)[0] in "PS":
            words.append(set())
    return words


def _is_written_together(scripts: set[str]) -> bool:
    return len(scripts) < 2 or any(scripts <= together for together in _TOGETHER)


def _script(letter: str) -> set[str]:
    """The first word of its name: LATIN, CYRILLIC, CHEROKEE, CJK; none for those of several."""
    if unicodedata.category(letter) == "Lm":
        return set()
    plain = unicodedata.normalize("NFKC", letter).strip()[:1]
    return {unicodedata.name(plain, "?").partition(" ")[0]} - {"IDEOGRAPHIC"}


def _latin(letter: str) -> str:
    found = _LATIN.match(unicodedata.name(letter, ""))
    return found[1].lower() if found else letter
