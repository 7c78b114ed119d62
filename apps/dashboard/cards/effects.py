"""What a change of a policy would do, as its dialog shows it before anybody saves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.accounts.models import User
from apps.configuration.services.preview import Preview
from apps.core.units import milli, milli_text
from apps.dashboard.cards.bars import UsageBar
from apps.dashboard.cards.words import plural
from apps.usage.selectors.current_usage import GPU

MOST_ROWS = 8
ReturnedTasks = Sequence[tuple[User, int]]


@dataclass(frozen=True, slots=True)
class Figure:
    """How many tasks it would happen to; `kind` is the colour of a figure above 0."""

    label: str
    count: int
    kind: str


@dataclass(frozen=True, slots=True)
class PolicyEffect:
    """A policy whose figures change: GPU in use and waiting tasks before and after."""

    name: str
    before: UsageBar | None
    after: UsageBar | None
    usage: str
    waiting: str


@dataclass(frozen=True, slots=True)
class Loss:
    """Tasks that would lose something, and the sentence that says it."""

    title: str
    lines: tuple[str, ...]
    more: int


@dataclass(frozen=True, slots=True)
class Effects:
    """`lost` counts the tasks that are preempted, could never run or become drafts."""

    figures: tuple[Figure, ...]
    policies: tuple[PolicyEffect, ...]
    losses: tuple[Loss, ...]
    lost: int
    is_at_rest: bool
    warnings: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Nothing happens to any task."""
        return not any(one.count for one in self.figures)


def effects_of(preview: Preview, returned: ReturnedTasks) -> Effects:
    """The preview in figures, bars and sentences.

    Args:
        returned: whose waiting tasks become drafts, and how many.
    """
    lost = preview.preempted.count + preview.rejected.count + preview.closed.count
    return Effects(
        figures=(
            Figure("would start", preview.starts.count, "ok"),
            Figure("would be preempted", preview.preempted.count, "bad"),
            Figure("would start later", preview.delayed.count, "warn"),
            Figure("could never run", preview.rejected.count, "bad"),
            Figure("would become drafts", preview.closed.count, "warn"),
        ),
        policies=tuple(_policy(row) for row in preview.policies if row["before"] != row["after"]),
        losses=tuple(_losses(preview, returned)),
        lost=lost,
        is_at_rest=preview.is_at_rest,
        warnings=preview.warnings,
    )


def _losses(preview: Preview, returned: ReturnedTasks) -> list[Loss]:
    found = []
    if count := preview.preempted.count:
        title = f"{plural(count, 'running task')} would be preempted"
        lines = [_preempted(row) for row in preview.preempted.rows]
        found.append(_loss(title, lines, of=count))
    if count := preview.closed.count:
        title = f"{plural(count, 'waiting task')} would become draft{'' if count == 1 else 's'}"
        lines = [f"{who}: {number}" for who, number in returned] or [
            f"{row['queue']}: {row['tasks_returned']}" for row in preview.closed.rows
        ]
        found.append(_loss(title, lines, of=len(lines)))
    if count := preview.rejected.count:
        title = f"{plural(count, 'waiting task')} could never run"
        rows = preview.rejected.rows
        title += " and would stay queued until the limit or the request changes"
        lines = [f"{row['queue']}: {row['count']}. {row['sentence']}" for row in rows]
        found.append(_loss(title, lines, of=len(lines) + preview.rejected.more))
    return found


def _loss(title: str, lines: list[str], *, of: int) -> Loss:
    return Loss(title, tuple(lines[:MOST_ROWS]), max(of - MOST_ROWS, 0))


def _preempted(row: Mapping[str, Any]) -> str:
    then = "is queued again" if row["is_requeued"] else "is not queued again"
    beneficiary = row["beneficiary"]["policy"]
    return f"{row['name']} of {row['policy']} in {row['pool']}, for {beneficiary}: {then}"


def _policy(row: Mapping[str, Any]) -> PolicyEffect:
    before, after = row["before"], row["after"]
    return PolicyEffect(
        name=row["policy"],
        before=_bar(before),
        after=_bar(after),
        usage=_change_text(_usage(before), _usage(after)),
        waiting=_change_text(*(None if one is None else one["waiting"] for one in (before, after))),
    )


def _bar(side: Mapping[str, Any] | None) -> UsageBar | None:
    if side is None:
        return None
    return UsageBar.of(
        used=_gpu(side["reserved"]) + _gpu(side["over_quota"]),
        reserved=_gpu(side["reservation"]),
        limit=milli(side["limit"][GPU]) if GPU in side["limit"] else None,
        over_quota=_gpu(side["over_quota"]),
    )


def _usage(side: Mapping[str, Any] | None) -> str | None:
    return None if side is None else milli_text(_gpu(side["reserved"]) + _gpu(side["over_quota"]))


def _gpu(amounts: Mapping[str, str]) -> int:
    return milli(amounts.get(GPU, "0"))


def _change_text(before: object, after: object) -> str:
    """`4`, or `4 → 8`; an en dash where there is none."""
    first, then = ("–" if one is None else str(one) for one in (before, after))
    return first if first == then else f"{first} → {then}"
