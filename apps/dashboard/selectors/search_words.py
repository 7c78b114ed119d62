"""What a user types into the search: words, the beginning of an id, or a question."""

import re
from dataclasses import dataclass
from uuid import UUID

MOST_CHARS = 200
# More parts than these are not compared.
MOST_PARTS = 5
# Fewer characters of an id are in too many of them.
_FEWEST_ID_CHARS = 6
_HEX = re.compile(r"[0-9a-f-]+", re.ASCII)
_WORD = re.compile(r"[^\W_]+")
_WHY = re.compile(
    r"why\s+(?:(?:does|do|is|are|must)\s+)?(?P<task>.+?)"
    r"(?:\s+(?:still\s+)?(?:waits?|waiting|queued)|\s+(?:not|never)\s+\S+)?\s*\??",
    re.IGNORECASE,
)
_VERB = r"(?:see|do|use|read|view|enqueue|manage|access)"
_CAN = re.compile(
    rf"(?:what\s+)?(?:can|may)\s+(?P<person>\S+)\s+{_VERB}"
    r"(?:\s+(?:of|in|on|at|with|to|into))?(?:\s+(?P<thing>.+?))?\s*\??",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question that RPM answers: why the task `subject` waits, or what the user may do."""

    subject: str
    is_about_task: bool
    thing: str = ""

    @property
    def is_about_reader(self) -> bool:
        return not self.is_about_task and self.subject.casefold() in {"i", "me"}


def question_of(words: str) -> Question | None:
    """The question, such as `why does train-17 wait` or `what can mina see`."""
    if (asked := _WHY.fullmatch(words)) is not None:
        return Question(asked["task"], is_about_task=True)
    if (asked := _CAN.fullmatch(words)) is not None:
        return Question(asked["person"], is_about_task=False, thing=asked["thing"] or "")
    return None


def parts_of(words: str) -> tuple[str, ...]:
    """The parts that a name has to contain, all of them."""
    return tuple(words.casefold().split()[:MOST_PARTS])


def is_match(name: str, parts: tuple[str, ...]) -> bool:
    """Whether the name contains every part."""
    return all(part in name.casefold() for part in parts)


def fit(name: str, parts: tuple[str, ...]) -> int:
    """How well a name that contains the parts fits them: 0 is the whole name, 4 a part of it."""
    folded = name.casefold()
    if folded == " ".join(parts):
        return 0
    words = _WORD.findall(folded)
    return max((_fit_of(folded, words, part) for part in parts), default=4)


def _fit_of(name: str, words: list[str], part: str) -> int:
    if part in words:
        return 1
    if name.startswith(part):
        return 2
    return 3 if any(word.startswith(part) for word in words) else 4


def uuid_range(text: str) -> tuple[UUID, UUID] | None:
    """The smallest and the largest id that begins so; None where this is no beginning of an id."""
    if _HEX.fullmatch(text) is None:
        return None
    digits = text.replace("-", "")
    if not _FEWEST_ID_CHARS <= len(digits) <= 32:
        return None
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
