"""Usage of a stretch of time, summed up by what the sums are kept for."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.usage.models import (
    Measures,
    OwnerDay,
    OwnerHour,
    PolicyDay,
    PolicyHour,
    QueueDay,
    QueueHour,
)
from apps.usage.selectors.ledger import AttemptUsage, Sums, add, attempts_in, nothing

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class SumKind:
    """What sums are kept for: one row per hour, and per day, of each key.

    Args:
        columns: of the key.
        keys: those of an attempt: of the time that it holds something under a tier and model, and
            of its start and end.
    """

    hour: type[Measures]
    day: type[Measures]
    columns: tuple[str, ...]
    key: Callable[[AttemptUsage, str, str], Key]


BY_POLICY = SumKind(
    PolicyHour,
    PolicyDay,
    ("policy_id", "pool_id", "model", "tier"),
    lambda one, model, tier: (one.policy, one.pool, model, tier),
)
BY_QUEUE = SumKind(
    QueueHour, QueueDay, ("policy_id", "queue_id"), lambda one, *_: (one.policy, one.queue)
)
BY_OWNER = SumKind(
    OwnerHour, OwnerDay, ("policy_id", "owner_id"), lambda one, *_: (one.policy, one.owner)
)
SUM_KINDS = (BY_POLICY, BY_QUEUE, BY_OWNER)


def sums_in(
    start: datetime, end: datetime, kinds: Iterable[SumKind] = SUM_KINDS
) -> dict[SumKind, dict[Key, Sums]]:
    """From the attempts themselves, for each kind."""
    found: dict[SumKind, dict[Key, Sums]] = {
        kind: defaultdict(nothing) for kind in kinds
    }
    for one in attempts_in(start, end):
        for kind, sums in found.items():
            _add_attempt(sums, kind, one)
    return found


def _add_attempt(sums: dict[Key, Sums], kind: SumKind, one: AttemptUsage) -> None:
    for stretch in one.stretches:
        for model, gpu in stretch.gpu.items():
            if gpu:
                held = {"held": gpu * (stretch.end - stretch.start)}
                add(sums[kind.key(one, model, stretch.tier)], held)
    if one.at_start:
        add(sums[kind.key(one, one.model, one.start_tier)], one.at_start)
    if one.at_end:
        add(sums[kind.key(one, one.model, one.end_tier)], one.at_end)
