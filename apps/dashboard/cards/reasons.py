"""Why a task waits, as its page shows it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from apps.allocation.engine.model.reasons import ReasonCode
from apps.allocation.explanation import (
    SUSPENDED,
    ReaderNames,
    ReasonPayload,
    reason_payloads,
    reasons_now,
)
from apps.allocation.explanation.sentences import amount_words
from apps.core.units import MILLI, milli_text
from apps.dashboard.cards.words import REASONS, UNKNOWN_REASON, Word, ordinal, plural
from apps.tasks.models import Task
from apps.tasks.selectors.queue_order import QueueExplanation, ineligible_reasons

MOST_CELLS = 16
# As many tasks as a line names before it counts the rest.
MOST_NAMED = 5
# Why a pool of the routing order gets no task at all.
CLOSED: Mapping[str, str] = {ReasonCode.NO_SERVER: "No healthy node", ReasonCode.PAUSED: "Paused"}


@dataclass(frozen=True, slots=True)
class PoolFit:
    """What a pool of the routing order has of what is missing; a cell is one GPU, there or not.

    A pool that no node serves, or that is paused, has only a `label` that says so.
    """

    rank: int
    name: str
    needed: str
    free: str
    cells: tuple[bool, ...]
    label: str
    is_simulated: bool


@dataclass(frozen=True, slots=True)
class OtherReason:
    """What would keep the task waiting if the dominant reason were gone."""

    word: Word
    verdict: str
    help: str


@dataclass(frozen=True, slots=True)
class ReasonView:
    """`verdict` is the sentence, `numbers` are lines below it, `helps` what would help."""

    word: Word
    code: str
    verdict: str
    numbers: tuple[str, ...] = ()
    fits: tuple[PoolFit, ...] = ()
    helps: tuple[str, ...] = ()
    others: tuple[OtherReason, ...] = ()


NOT_YET = ReasonView(UNKNOWN_REASON, "", "The next pass decides within seconds.")


def stored_reasons(task: Task, *, position: int | None) -> Sequence[Mapping[str, Any]]:
    """What the last pass stored for a waiting task, in lists, where nothing more is asked.

    Args:
        position: place in the queue, for a task that is not the first of its group.
    """
    if task.ineligible_code:
        return ineligible_reasons(task)
    data = task.task_group.reason if task.task_group is not None else {}
    reasons = list(data.get("reasons") or [])
    known = QueueExplanation("", reasons, position, is_first=position is None)
    return reasons_now(task.queue_id, known)


def explain(
    reasons: Sequence[Mapping[str, Any]], names: ReaderNames, *, suspended: bool = False
) -> ReasonView:
    """Reasons as a pass stored them, for the reader of `names`."""
    payloads = reason_payloads(reasons, names, now=timezone.now())
    return reason_view((SUSPENDED, *payloads) if suspended else payloads, names)


def reason_view(
    reasons: Sequence[ReasonPayload],
    names: ReaderNames,
    *,
    simulated: frozenset[int] = frozenset(),
) -> ReasonView:
    """The dominant reason in full, the rest below it.

    Args:
        simulated: pools whose GPUs are made up.
    """
    if not reasons:
        return NOT_YET
    first = reasons[0]
    positions = [line for one in reasons[1:] for line in _position(one)]
    return ReasonView(
        word=REASONS.get(first.code, UNKNOWN_REASON),
        code=first.code,
        verdict=first.sentence,
        numbers=(*_named_tasks(first), *positions),
        fits=_fits(reasons, names, simulated),
        helps=(first.help,),
        others=tuple(
            OtherReason(REASONS.get(one.code, UNKNOWN_REASON), one.sentence, one.help)
            for one in reasons[1:]
            if not any(_position(one))
        ),
    )


def _position(reason: ReasonPayload) -> tuple[str, ...]:
    """Its position in the queue: equal tasks wait for the same thing, one after the other."""
    position = next((one["position"] for one in reason.details if "position" in one), 0)
    if reason.code != ReasonCode.BEHIND or position < 2:
        return ()
    come = "come" if position > 2 else "comes"
    return (
        f"It is the {ordinal(position)} in its queue: {plural(position - 1, 'task')} {come} first.",
    )


def _named_tasks(reason: ReasonPayload) -> tuple[str, ...]:
    """The tasks that are waited for, those of other teams as a number."""
    if reason.code not in {ReasonCode.DRAINING, ReasonCode.PROTECTED}:
        return ()
    named = [name for one in reason.details for name in one["names"].get("tasks", ())]
    rest = sum(one.get("task_count", 0) for one in reason.details) - len(named[:MOST_NAMED])
    words = ", ".join(named[:MOST_NAMED]) + (f" and {rest} more" if rest else "")
    return (f"Waiting for {words}.",) if named else ()


def _fits(
    reasons: Sequence[ReasonPayload], names: ReaderNames, simulated: frozenset[int]
) -> tuple[PoolFit, ...]:
    """Every pool of the routing order, where the task waits for capacity."""
    if reasons[0].code != ReasonCode.CAPACITY:
        return ()
    found = [_fit(one, names, simulated) for one in reasons[0].details]
    for reason in reasons[1:]:
        if reason.code in CLOSED:
            found += [
                _closed(one, names, simulated, label=CLOSED[reason.code])
                for one in reason.details
                if "rank" in one
            ]
    return tuple(sorted(found, key=lambda one: one.rank))


def _closed(
    detail: Mapping[str, Any], names: ReaderNames, simulated: frozenset[int], *, label: str
) -> PoolFit:
    return PoolFit(
        rank=detail["rank"],
        name=detail["names"].get("pool", ""),
        needed="",
        free="",
        cells=(),
        label=label,
        is_simulated=names.routing[detail["rank"] - 1] in simulated,
    )


def _fit(detail: Mapping[str, Any], names: ReaderNames, simulated: frozenset[int]) -> PoolFit:
    needed, free = detail.get("needed") or 0, detail.get("free") or 0
    best = detail["largest"] if detail.get("largest") is not None else free
    whole = -(-needed // MILLI)
    there = min(best // MILLI, whole)
    key = detail.get("key")
    is_drawn = key == "gpu" and 0 < whole <= MOST_CELLS
    rank = detail.get("rank", 1)
    pool = names.routing[rank - 1] if "rank" in detail else 0
    return PoolFit(
        rank=rank,
        name=detail["names"].get("pool", ""),
        needed=amount_words(key, needed),
        free=amount_words(key, free),
        cells=tuple(at < there for at in range(whole)) if is_drawn else (),
        label=f"{milli_text(best)} of {amount_words(key, needed)}",
        is_simulated=pool in simulated,
    )
