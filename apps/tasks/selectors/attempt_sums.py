"""Sums over attempts of all owners, for metrics and current figures; names nobody."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Avg, Count, DurationField, ExpressionWrapper, F, Max, Q

from apps.core.ids import first_uuid7
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES
from apps.tasks.models import Attempt


@dataclass(frozen=True, slots=True)
class LiveAttemptSum:
    """Live attempts of one queue, pool and state: `amounts` in thousandths per key, together."""

    queue_id: int
    policy_id: int
    pool_id: int
    state: str
    count: int
    amounts: Mapping[str, int]


def live_attempt_sums() -> list[LiveAttemptSum]:
    """What live attempts hold, in one query, with a row for each shape and not for each attempt."""
    shape = ("queue_id", "policy_id", "pool_id", "state", "request", "replicas")
    rows = Attempt.objects.filter(state__in=LIVE_ATTEMPT_STATES).order_by().values_list(*shape)
    return [
        LiveAttemptSum(
            queue_id=queue,
            policy_id=policy,
            pool_id=pool,
            state=state,
            count=count,
            amounts={key: amount * replicas * count for key, amount in request.items()},
        )
        for queue, policy, pool, state, request, replicas, count in rows.annotate(Count("pk"))
    ]


@dataclass(frozen=True, slots=True)
class LaunchSums:
    """Attempts by the result of their launch, and the seconds from admission to start.

    `failed` could not be launched so far, or ended before they ran without being asked to stop.
    """

    started: int
    failed: int
    waiting: int
    mean_s: float
    longest_s: float


def launches_since(moment: datetime) -> LaunchSums:
    """Of the attempts that were admitted since then, in one query over the end of their ids."""
    took = ExpressionWrapper(F("started_at") - F("allocated_at"), output_field=DurationField())
    started = Q(started_at__isnull=False)
    is_over_unasked = Q(ended_at__isnull=False, stop_asked_at__isnull=True)
    failed = ~started & (Q(start_failures__gt=0) | is_over_unasked)
    attempts = Attempt.objects.filter(id__gte=first_uuid7(int(moment.timestamp() * 1000)))
    sums = attempts.aggregate(
        started=Count("pk", filter=started),
        failed=Count("pk", filter=failed),
        waiting=Count("pk", filter=~started & ~failed & Q(ended_at__isnull=True)),
        mean=Avg(took),
        longest=Max(took),
    )
    return LaunchSums(
        started=sums["started"],
        failed=sums["failed"],
        waiting=sums["waiting"],
        mean_s=sums["mean"].total_seconds() if sums["mean"] else 0.0,
        longest_s=sums["longest"].total_seconds() if sums["longest"] else 0.0,
    )
