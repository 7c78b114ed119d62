"""Work that holds room, grouped as the engine takes it."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

from apps.allocation.engine.quantities import Quantities
from apps.allocation.engine.snapshot import Held, Member, Running, Share
from apps.tasks.models import Attempt, Holding
from apps.tasks.states import LIVE_ATTEMPT_STATES, AttemptState

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(moment: datetime | None) -> int:
    """Since the epoch, exactly; 0 where nothing is known."""
    return (moment - _EPOCH) // timedelta(microseconds=1) if moment else 0


def load_running() -> tuple[Running, ...]:
    """Every live attempt, in groups of equal ones. Three queries."""
    members = _members()
    stopping_for = _beneficiaries()
    groups: dict[tuple[Any, ...], list[Held]] = defaultdict(list)
    for row in _attempts():
        request = tuple(sorted(row["request"].items()))
        key = (
            row["pool_id"],
            row["policy_id"],
            row["queue__profile_id"],
            request,
            row["queue_id"],
            row["replicas"],
            row["task__priority"],
            row["task__is_preemptible"],
            row["task__run__user_id"],
            row["task__run__exceeds_limit"],
            row["state"] == AttemptState.STOPPING,
        )
        groups[key].append(
            Held(
                task=str(row["task_id"]),
                submitted_us=microseconds(row["task__submitted_at"]),
                started_us=microseconds(row["started_at"] or row["allocated_at"]),
                members=tuple(members.get(row["id"], ())),
                preemptions=row["task__preemptions"],
                stops_for=stopping_for.get(row["id"]),
            )
        )
    return tuple(_running(key, held) for key, held in groups.items())


def _running(key: tuple[Any, ...], held: list[Held]) -> Running:
    pool, policy, profile, request, queue, replicas, priority, preemptible, user, over, stops = key
    return Running(
        pool=pool,
        policy=policy,
        profile=profile,
        request=Quantities.of(request),
        tasks=tuple(held),
        queue=queue,
        replicas=replicas,
        priority=priority,
        is_preemptible=preemptible,
        user=user,
        can_exceed_limit=bool(over),
        is_stopping=stops,
    )


def _attempts() -> Any:
    return (
        Attempt.objects.filter(state__in=LIVE_ATTEMPT_STATES)
        .order_by("id")
        .values(
            "id",
            "task_id",
            "pool_id",
            "policy_id",
            "queue_id",
            "queue__profile_id",
            "request",
            "replicas",
            "state",
            "allocated_at",
            "started_at",
            "task__priority",
            "task__is_preemptible",
            "task__submitted_at",
            "task__preemptions",
            "task__run__user_id",
            "task__run__exceeds_limit",
        )
    )


def _members() -> dict[Any, list[Member]]:
    found: dict[Any, list[Member]] = defaultdict(list)
    rows = Holding.objects.filter(released_at__isnull=True, node__isnull=False)
    for attempt, node, devices in rows.order_by("attempt_id", "rank").values_list(
        "attempt_id", "node_id", "devices"
    ):
        shares = tuple(Share(index=index, milli=milli) for index, milli in devices)
        found[attempt].append(Member(node=node, devices=shares))
    return found


def _beneficiaries() -> dict[Any, str]:
    """Attempts that stop so that another task can start."""
    rows = Attempt.blocked_by.through.objects.filter(
        to_attempt__state=AttemptState.STOPPING,
        from_attempt__state__in=LIVE_ATTEMPT_STATES,
    )
    pairs = rows.order_by("id").values_list("to_attempt_id", "from_attempt__task_id")
    return {victim: str(task) for victim, task in pairs}
