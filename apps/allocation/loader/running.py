"""Work that holds room, grouped as the engine takes it."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

from apps.allocation.engine.quantities import Quantities
from apps.allocation.engine.snapshot import Held, Id, Member, Running, Share
from apps.allocation.loader.configuration import Configuration
from apps.tasks.models import Attempt, Holding
from apps.tasks.states import LIVE_ATTEMPT_STATES, AttemptState

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(moment: datetime | None) -> int:
    """Since the epoch, exactly; 0 where nothing is known."""
    return (moment - _EPOCH) // timedelta(microseconds=1) if moment else 0


def load_running(configuration: Configuration) -> tuple[Running, ...]:
    """Every live attempt, in groups of equal ones. Two queries.

    Attempts are read first: a moved task begins its next one at any time, and what is read here
    must have its members.
    """
    by_person = _limited_by_person(configuration)
    rows = list(_attempts())
    members = _members()
    groups: dict[tuple[Any, ...], list[Held]] = defaultdict(list)
    for row in rows:
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
            row["task__owner_id"] if row["policy_id"] in by_person else None,
            row["task__run__exceeds_limit"],
            row["state"] == AttemptState.STOPPING,
        )
        taker = _taker(row)
        is_stopping = row["state"] == AttemptState.STOPPING
        groups[key].append(
            Held(
                task=str(row["task_id"]),
                submitted_us=microseconds(row["task__submitted_at"]),
                started_us=microseconds(row["started_at"] or row["allocated_at"]),
                members=_kept(row["moves_to"]) or tuple(members.get(row["id"], ())),
                checkpointed_us=_moment_us(row["checkpointed_at"]),
                preemptions=row["task__preemptions"],
                stops_for=taker,
                is_leaving=is_stopping and taker is None and not row["moves_to"],
                is_movable=row["task__is_restartable"],
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
            "checkpointed_at",
            "moves_to",
            "stops_for__task_id",
            "stops_for__state",
            "task__priority",
            "task__is_preemptible",
            "task__submitted_at",
            "task__preemptions",
            "task__is_restartable",
            "task__owner_id",
            "task__run__exceeds_limit",
        )
    )


def _limited_by_person(configuration: Configuration) -> set[Id]:
    """Policies under a limit per person; it counts what ran before it was set, too."""
    policies = {policy.id: policy for policy in configuration.policies}
    found: set[Id] = set()
    for policy in configuration.policies:
        at: Id | None = policy.id
        while at is not None:
            if policies[at].user_limit:
                found.add(policy.id)
            at = policies[at].parent
    return found


def _members() -> dict[Any, list[Member]]:
    found: dict[Any, list[Member]] = defaultdict(list)
    rows = Holding.objects.filter(released_at__isnull=True, node__isnull=False)
    for attempt, node, devices in rows.order_by("attempt_id", "rank").values_list(
        "attempt_id", "node_id", "devices"
    ):
        shares = tuple(Share(index=index, milli=milli) for index, milli in devices)
        found[attempt].append(Member(node=node, devices=shares))
    return found


def _kept(moves_to: Any) -> tuple[Member, ...]:
    """The seats that are kept for moved work: it is charged there, the old ones are given away."""
    return tuple(
        Member(
            node=node, devices=tuple(Share(index=index, milli=milli) for index, milli in devices)
        )
        for node, devices in moves_to or ()
    )


def _taker(row: Any) -> str | None:
    """The task that takes the room of this one; a moved one is charged like any other."""
    if row["moves_to"] or row["stops_for__state"] not in LIVE_ATTEMPT_STATES:
        return None
    return str(row["stops_for__task_id"])


def _moment_us(moment: datetime | None) -> int | None:
    return None if moment is None else microseconds(moment)
