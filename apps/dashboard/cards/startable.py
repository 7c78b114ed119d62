"""What can be started right now, in a number and a sentence per profile."""

from collections.abc import Iterable
from dataclasses import dataclass

from apps.allocation.engine.reasons import Code
from apps.allocation.whatif.starting import Startable
from apps.dashboard.cards.words import REASONS, UNKNOWN_REASON, Word, plural
from apps.policies.models import Queue


@dataclass(frozen=True, slots=True)
class StartRow:
    """`number` stands in the square; `head` is the verdict, `why` and `limits` say the rest."""

    queue: Queue
    number: str
    kind: str
    head: str
    why: str
    limits: str


def start_rows(found: Iterable[Startable]) -> list[StartRow]:
    """One row per queue, those where something starts first."""
    rows = [(one.count == 0, _row(one)) for one in found]
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def _row(one: Startable) -> StartRow:
    return StartRow(
        queue=one.queue,
        number=f"{one.count}+" if one.is_more else str(one.count),
        kind="ok" if one.count else "wait",
        head=_head(one),
        why=_why(one),
        limits=_limits(one),
    )


def _head(one: Startable) -> str:
    if one.is_more:
        return f"{one.count} tasks and more start at once."
    if one.count:
        return f"{plural(one.count, 'task')} {'starts' if one.count == 1 else 'start'} at once."
    if one.after:
        return f"{plural(one.after, 'task')} would start once others have stopped."
    word: Word = REASONS.get(one.reason.code, UNKNOWN_REASON) if one.reason else UNKNOWN_REASON
    return f"Would wait: {word.text}."


def _why(one: Startable) -> str:
    after = f" {one.after} more once others have stopped." if one.count and one.after else ""
    if one.reason is None:
        return after.strip()
    return f"{after} {'Then: ' if one.count else ''}{one.reason.sentence}".strip()


def _limits(one: Startable) -> str:
    # Where that limit is what holds the next one, the reason said so already.
    if not one.limit or (one.reason is not None and one.reason.code == Code.LIMIT):
        return ""
    return f"Next comes {one.limit}: it allows {one.allowed}."
