"""What attempts add to the sums of each hour: exact, nothing is sampled."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import (
    BooleanField,
    Case,
    Count,
    Exists,
    ExpressionWrapper,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    When,
)
from django.db.models.functions import Coalesce

from apps.tasks.lifecycle.states import AttemptState, TaskState
from apps.tasks.models import Attempt, Member, PastTier
from apps.tasks.models.attempts import WAS_STOPPED
from apps.usage.models import WAIT_BUCKETS
from apps.usage.selectors.current_usage import GPU
from apps.usage.selectors.rates import Rates

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MS = timedelta(milliseconds=1)
HOUR_MS = 3_600_000
# Of one attempt: years become a bounded number of hours.
MOST_AT_ONCE = timedelta(days=31)
# A run each minute books an end; one that lasts longer than this is not there.
BOOKED_WITHIN = timedelta(minutes=10)

Sums = dict[str, int]


def to_ms(at: datetime) -> int:
    """Milliseconds since 1970, rounded down: stretches that follow each other add up exactly."""
    return (at - EPOCH) // MS


def hour_of(at: datetime) -> datetime:
    """The beginning of its hour, in UTC."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


@dataclass(frozen=True, slots=True)
class Booking:
    """What an attempt adds to one hour; `at` is its beginning, `sums` are by measure."""

    at: datetime
    policy: int
    pool: int
    queue: int
    owner: int
    model: str
    tier: str
    sums: Sums


@dataclass(frozen=True, slots=True)
class AttemptBookings:
    """What was not booked yet of one attempt, up to `until`; `is_last` where it has ended."""

    attempt: UUID
    until: datetime
    is_last: bool
    bookings: tuple[Booking, ...]


def attempts_to_book(hour: datetime) -> QuerySet[Attempt]:
    """Those never booked or ended, and live ones that miss a whole hour before `hour`."""
    return Attempt.objects.filter(
        Q(ended_at__isnull=False) | Q(booked_until__isnull=True) | Q(booked_until__lt=hour),
        is_booked=False,
    )


def unbooked_ends(before: datetime) -> int:
    """How many attempts ended before, which the sums of usage do not contain yet."""
    return Attempt.objects.filter(is_booked=False, ended_at__lt=before).count()


def bookings_of(attempts: QuerySet[Attempt], *, until: datetime) -> Iterator[AttemptBookings]:
    """What these attempts held since they were booked last, in four queries.

    Live ones up to `until`. An end that was stored after later hours had been booked cancels these:
    its bookings are negative.
    """
    models = _members_by_model(attempts)
    tiers = past_tiers(attempts)
    rates = Rates.load()
    for row in _rows(attempts):
        past = tiers.get(row["pk"], ())
        # A pool without nodes has no model.
        members = models.get(row["pk"]) or {"": row["replicas"]}
        yield _unbooked(row, members, past, until, rates)


def _rows(attempts: QuerySet[Attempt]) -> QuerySet[Attempt, dict[str, Any]]:
    before = Attempt.objects.filter(
        task=OuterRef("task_id"), generation=OuterRef("generation") - 1
    ).values("ended_at")
    stopped = Member.objects.filter(WAS_STOPPED, attempt=OuterRef("pk"))
    # What only a first booking needs is not looked up for others.
    is_first = Q(booked_until__isnull=True)
    rows: QuerySet[Attempt, dict[str, Any]] = attempts.annotate(
        before_ended_at=Case(When(is_first, then=Subquery(before))),
        was_preempted=ExpressionWrapper(
            Q(is_preempted=True) & Exists(stopped), output_field=BooleanField()
        ),
        waits_since=Case(
            When(
                is_first,
                then=Coalesce("task__waiting_since", "task__submitted_at", "task__created_at"),
            )
        ),
    ).values(
        *("pk", "policy_id", "pool_id", "queue_id", "task__owner_id", "tier", "request"),
        *("replicas", "allocated_at", "started_at", "checkpointed_at", "ended_at", "state"),
        *("is_preempted", "was_preempted", "exit_code", "stop_target", "booked_until"),
        *("waits_since", "before_ended_at"),
    )
    return rows


def _members_by_model(attempts: QuerySet[Attempt]) -> dict[UUID, dict[str, int]]:
    """How many members of each attempt are on nodes with GPUs of each model."""
    found: dict[UUID, dict[str, int]] = defaultdict(dict)
    members = Member.objects.filter(attempt__in=attempts.values("pk"), node__isnull=False)
    model = Coalesce("gpu_model", "node__gpu_model")
    counted = members.annotate(model=model).values("attempt_id", "model")
    for one in counted.annotate(members=Count("pk")).order_by():
        found[one["attempt_id"]][one["model"]] = one["members"]
    return found


def past_tiers(attempts: QuerySet[Attempt]) -> dict[UUID, list[tuple[str, datetime]]]:
    """The tiers that they had before their present ones, with their ends, oldest first."""
    found: dict[UUID, list[tuple[str, datetime]]] = defaultdict(list)
    past = PastTier.objects.filter(attempt__in=attempts.values("pk")).order_by("until", "pk")
    for attempt, tier, until in past.values_list("attempt_id", "tier", "until"):
        found[attempt].append((tier, until))
    return found


def _unbooked(
    row: dict[str, Any],
    members: Mapping[str, int],
    past: Sequence[tuple[str, datetime]],
    until: datetime,
    rates: Rates,
) -> AttemptBookings:
    began: datetime = row["allocated_at"]
    since: datetime = row["booked_until"] or began
    ended_at: datetime | None = row["ended_at"]
    # The clock of a node may be behind, or ours may have been.
    end = max(until, since) if ended_at is None else max(ended_at, began)
    if end - since > MOST_AT_ONCE:
        # The rest is booked next.
        end, ended_at = since + MOST_AT_ONCE, None
    tiers = [*past, (row["tier"], None)]
    found = _held(row, members, tiers, since=since, end=end, rates=rates)
    model = min(members)
    gpu = row["request"].get(GPU, 0) * sum(members.values())
    if row["booked_until"] is None:
        found.append(_booking(row, began, model, tiers[0][0], _start_sums(row)))
        found += _waited(row, model, tiers[0][0], gpu)
    if ended_at is not None:
        found.append(_booking(row, end, model, row["tier"], _end_sums(row, gpu, end)))
    return AttemptBookings(row["pk"], end, ended_at is not None, tuple(found))


def _booking(row: dict[str, Any], at: datetime, model: str, tier: str, sums: Sums) -> Booking:
    return Booking(
        hour_of(at),
        row["policy_id"],
        row["pool_id"],
        row["queue_id"],
        row["task__owner_id"],
        model,
        tier,
        sums,
    )


def _held(
    row: dict[str, Any],
    members: Mapping[str, int],
    tiers: Sequence[tuple[str, datetime | None]],
    *,
    since: datetime,
    end: datetime,
    rates: Rates,
) -> list[Booking]:
    """What was held and what it cost from `since` to `end`; subtracted if that is earlier."""
    sign = 1 if end > since else -1
    request = row["request"]
    return [
        _booking(row, at, model, tier, {"held": sign * held, "cost": sign * cost})
        for at, tier, ms in _stretches(tiers, to_ms(min(since, end)), to_ms(max(since, end)))
        for model, count in members.items()
        # Both are needed, also where the first is 0: tasks without GPUs may cost something.
        if (held := request.get(GPU, 0) * count * ms)
        | (cost := rates.cost(request, count * ms, at=at, pool=row["pool_id"], model=model))
    ]


def _waited(row: dict[str, Any], model: str, tier: str, gpu: int) -> list[Booking]:
    """The demand of the time before the attempt."""
    began: datetime = row["allocated_at"]
    first = max(_waits_since(row), began - MOST_AT_ONCE)
    return [
        _booking(row, at, model, tier, {"demand": gpu * ms})
        for at, _, ms in _stretches([("", None)], to_ms(first), to_ms(began))
        if gpu
    ]


def _stretches(
    tiers: Sequence[tuple[str, datetime | None]], start: int, end: int
) -> Iterator[tuple[datetime, str, int]]:
    """A moment of each hour, the tier, and the milliseconds of both."""
    at = start
    for tier, until in tiers:
        stop = end if until is None else min(to_ms(until), end)
        while at < stop:
            step = min(stop, (at // HOUR_MS + 1) * HOUR_MS)
            yield EPOCH + at * MS, tier, step - at
            at = step


def _waits_since(row: dict[str, Any]) -> datetime:
    since: datetime = max(row["waits_since"], row["before_ended_at"] or row["waits_since"])
    return since


def _start_sums(row: dict[str, Any]) -> Sums:
    waited_ms = max(to_ms(row["allocated_at"]) - to_ms(_waits_since(row)), 0)
    bucket = next(name for name, most_s in WAIT_BUCKETS.items() if waited_ms <= most_s * 1000)
    return {"admitted": 1, "waited_ms": waited_ms, bucket: 1}


def _end_sums(row: dict[str, Any], gpu: int, end: datetime) -> Sums:
    sums = {"ended": 1}
    is_lost = row["state"] == AttemptState.LOST
    was_stopped = bool(row["stop_target"]) and not row["is_preempted"]
    if row["was_preempted"]:
        sums["preempted"] = 1
    elif was_stopped or is_lost:
        sums["failed"] = int(was_stopped and row["stop_target"] == TaskState.FAILED)
    else:
        sums["completed" if row["exit_code"] == 0 else "failed"] = 1
    if (row["was_preempted"] or is_lost) and row["started_at"] is not None:
        saved_at = max(row["started_at"], row["checkpointed_at"] or row["started_at"])
        sums["lost"] = gpu * max(to_ms(end) - to_ms(saved_at), 0)
    return sums
