"""What can be started right now, in a number and a sentence per profile."""

from collections.abc import Iterable
from dataclasses import dataclass

from apps.allocation.engine.model.reasons import ReasonCode
from apps.allocation.whatif.start_counts import StartCount
from apps.dashboard.cards.words import plural
from apps.policies.models import Queue


@dataclass(frozen=True, slots=True)
class StartRow:
    """`number` is in the square; `head` is the verdict, `reason` and `limits` say the rest."""

    queue: Queue
    number: str
    kind: str
    head: str
    reason: str
    limits: str


def start_rows(found: Iterable[StartCount]) -> list[StartRow]:
    """One row per queue, those where something starts first."""
    rows = [(not one.count, not one.after, _row(one)) for one in found]
    return [row for _, _, row in sorted(rows, key=lambda parts: parts[:2])]


def _row(one: StartCount) -> StartRow:
    return StartRow(
        queue=one.queue,
        number=f"{one.count + one.after}{'+' if one.is_more else ''}",
        kind="ok" if one.count else "wait",
        head=_head(one),
        reason=_reason(one),
        limits=_limits(one),
    )


def _head(one: StartCount) -> str:
    if not one.count and not one.after:
        return "Would wait."
    more = " and more" if one.is_more else ""
    if not one.after:
        return f"{plural(one.count, 'task')}{more} {_verb(one.count)} at once."
    if one.count:
        now = f"{plural(one.count, 'task')} {_verb(one.count)} at once"
        return f"{now}, {one.after}{more} once others have stopped."
    return f"{plural(one.after, 'task')}{more} {_verb(one.after)} once others have stopped."


def _verb(count: int) -> str:
    return "starts" if count == 1 else "start"


def _reason(one: StartCount) -> str:
    if one.reason is None:
        return ""
    return f"{'Then: ' if one.count or one.after else ''}{one.reason.sentence}"


def _limits(one: StartCount) -> str:
    # Where that limit is what holds the next one, the reason said so already.
    if not one.limit or (one.reason is not None and one.reason.code == ReasonCode.LIMIT):
        return ""
    return f"Next comes {one.limit}: it allows {plural(one.allowed, 'task')}."
