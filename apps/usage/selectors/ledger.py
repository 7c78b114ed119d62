"""What was held in a stretch of time, from the attempts themselves: exact, nothing is sampled."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from apps.tasks.lifecycle.states import AttemptState, TaskState
from apps.tasks.models import Attempt, Member, PastTier
from apps.usage.models import MEASURES, WAIT_BUCKETS

GPU = "gpu"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)

Sums = dict[str, int]


def to_ms(at: datetime) -> int:
    """Milliseconds since 1970, rounded down: sums of adjacent stretches add up exactly."""
    return (at - EPOCH) // MS


@dataclass(frozen=True, slots=True)
class HeldStretch:
    """What an attempt held under one tier; `start` and `end` in milliseconds since 1970.

    `gpu` is in thousandths, of all members together, by the model of their nodes' GPUs.
    """

    tier: str
    gpu: dict[str, int]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class AttemptUsage:
    """One attempt: whom it counts for, what it held, and what happened in the time."""

    policy: int
    pool: int
    queue: int
    owner: int
    stretches: tuple[HeldStretch, ...]
    # Everything but `held`; it belongs to the tier at that moment, and to `model`.
    start_tier: str
    end_tier: str
    model: str
    at_start: Sums = field(default_factory=dict)
    at_end: Sums = field(default_factory=dict)


def attempts_in(start: datetime, end: datetime) -> Iterator[AttemptUsage]:
    """Every attempt that held something from `start` to `end`, or began or ended then.

    Three statements, and as many rows as there are such attempts.
    """
    rows = Attempt.objects.filter(
        Q(ended_at__isnull=True) | Q(ended_at__gte=start), allocated_at__lt=end
    )
    models = _models(rows)
    tiers = _past_tiers(rows, start)
    for row in _with_waits(rows).iterator():
        yield _usage(row, models.get(row["pk"], {}), tiers.get(row["pk"], ()), start, end)


def _with_waits(rows: QuerySet[Attempt]) -> QuerySet[Attempt, dict[str, Any]]:
    before = Attempt.objects.filter(
        task=OuterRef("task_id"), generation=OuterRef("generation") - 1
    ).values("ended_at")
    return rows.annotate(
        waits_since=Coalesce(
            Subquery(before), F("task__waiting_since"), F("task__submitted_at"), F("allocated_at")
        )
    ).values(
        *("pk", "policy_id", "pool_id", "queue_id", "task__owner_id", "tier", "request"),
        *("replicas", "allocated_at", "started_at", "checkpointed_at", "ended_at", "state"),
        *("is_preempted", "exit_code", "stop_target", "waits_since"),
    )


def _models(rows: QuerySet[Attempt]) -> dict[UUID, dict[str, int]]:
    """How many members of each attempt are on nodes with GPUs of each model."""
    found: dict[UUID, dict[str, int]] = defaultdict(dict)
    members = Member.objects.filter(attempt__in=rows, node__isnull=False)
    counted = members.values("attempt_id", "node__gpu_model").annotate(members=Count("pk"))
    for one in counted.order_by():
        found[one["attempt_id"]][one["node__gpu_model"]] = one["members"]
    return found


def _past_tiers(
    rows: QuerySet[Attempt], start: datetime
) -> dict[UUID, list[tuple[str, datetime]]]:
    found: dict[UUID, list[tuple[str, datetime]]] = defaultdict(list)
    past = PastTier.objects.filter(attempt__in=rows, until__gt=start).order_by("until", "pk")
    for attempt, tier, until in past.values_list("attempt_id", "tier", "until"):
        found[attempt].append((tier, until))
    return found


def _usage(
    row: dict[str, Any],
    models: dict[str, int],
    past: Iterable[tuple[str, datetime]],
    start: datetime,
    end: datetime,
) -> AttemptUsage:
    gpu = row["request"].get(GPU, 0)
    by_model = {model: gpu * members for model, members in models.items()}
    if not models:
        by_model = {"": gpu * row["replicas"]}
    ended_at: datetime | None = row["ended_at"]
    stretches = tuple(
        _stretches(row, by_model, past, to_ms(start), to_ms(min(ended_at or end, end)))
    )
    first = next(iter(past), (row["tier"],))[0]
    return AttemptUsage(
        policy=row["policy_id"],
        pool=row["pool_id"],
        queue=row["queue_id"],
        owner=row["task__owner_id"],
        stretches=stretches,
        start_tier=first,
        end_tier=row["tier"],
        model=min(by_model),
        at_start=_at_start(row) if start <= row["allocated_at"] else {},
        at_end=_at_end(row, sum(by_model.values()))
        if ended_at is not None and start <= ended_at < end
        else {},
    )


def _stretches(
    row: dict[str, Any],
    gpu: dict[str, int],
    past: Iterable[tuple[str, datetime]],
    start: int,
    end: int,
) -> Iterator[HeldStretch]:
    at = max(start, to_ms(row["allocated_at"]))
    for tier, until in past:
        stop = min(to_ms(until), end)
        if stop > at:
            yield HeldStretch(tier, gpu, at, stop)
            at = stop
    if end > at:
        yield HeldStretch(row["tier"], gpu, at, end)


def _at_start(row: dict[str, Any]) -> Sums:
    waited_ms = max(to_ms(row["allocated_at"]) - to_ms(row["waits_since"]), 0)
    bucket = next(name for name, most_s in WAIT_BUCKETS.items() if waited_ms <= most_s * 1000)
    return {"started": 1, "waited_ms": waited_ms, bucket: 1}


def _at_end(row: dict[str, Any], gpu: int) -> Sums:
    sums = {"ended": 1}
    is_lost = row["state"] == AttemptState.LOST
    if row["is_preempted"]:
        sums["preempted"] = 1
    elif row["exit_code"] == 0:
        sums["completed"] = 1
    elif not is_lost and row["stop_target"] in {"", TaskState.FAILED}:
        sums["failed"] = 1
    if (row["is_preempted"] or is_lost) and row["started_at"] is not None:
        saved_at = max(row["started_at"], row["checkpointed_at"] or row["started_at"])
        sums["lost"] = gpu * max(to_ms(row["ended_at"]) - to_ms(saved_at), 0)
    return sums


def add(sums: Sums, more: Sums) -> None:
    """Add measures to measures."""
    for name, value in more.items():
        sums[name] = sums.get(name, 0) + value


def nothing() -> Sums:
    """Every measure, at zero."""
    return dict.fromkeys(MEASURES, 0)


def first_placement() -> datetime | None:
    """When the first attempt of all began."""
    # Their ids are in the order in which attempts were made.
    return Attempt.objects.order_by("pk").values_list("allocated_at", flat=True).first()
