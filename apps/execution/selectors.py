"""What is due on nodes."""

from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from apps.core import clock
from apps.nodes.models import Installation, NodeState
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES, AttemptState, MemberState
from apps.tasks.models import Attempt, Member
from apps.tasks.services.members.gangs import members_not_ready
from apps.tasks.services.members.launch import MOST_BACK_OFF_S

UNREACHED_STATES = (NodeState.SUSPECT, NodeState.REFUSED)


def members_to_launch(node_ids: Iterable[int], *, token: str) -> QuerySet[Member]:
    """Members on these nodes whose capacity is free and which are due, with their owners.

    Args:
        token: the process that asks, which serves these nodes. What another one had begun to
            launch there is to be launched again: the node starts it at most once.
    """
    blockers = Attempt.blocked_by.through.objects.filter(
        to_attempt__state__in=LIVE_ATTEMPT_STATES
    ).values("from_attempt_id")
    now = clock.now()
    # A time that lies further ahead than any back-off comes from a clock that has jumped.
    latest = now + timedelta(seconds=MOST_BACK_OFF_S)
    return (
        Member.objects.filter(
            Q(attempt__not_before__isnull=True)
            | Q(attempt__not_before__lte=now)
            | Q(attempt__not_before__gt=latest),
            Q(state=MemberState.ALLOCATED) | Q(state=MemberState.STARTING) & ~Q(lock_token=token),
            node__in=list(node_ids),
            released_at__isnull=True,
            attempt__state__in=[AttemptState.ALLOCATED, AttemptState.STARTING],
        )
        .exclude(attempt__in=blockers)
        # Members of a gang whose node is ready wait for the others.
        .exclude(
            Exists(members_not_ready().filter(attempt=OuterRef("attempt"))),
            ready_at__isnull=False,
            launched_at__isnull=True,
        )
        .select_related("attempt__task")
        .only("node", "rank", "ready_at", "attempt__task__owner")
        .order_by("attempt_id", "rank")
    )


def members_to_stop(node_ids: Iterable[int]) -> QuerySet[Member]:
    """Members on these nodes that have not ended although their attempt is to stop."""
    return (
        Member.objects.filter(
            node__in=list(node_ids),
            released_at__isnull=True,
            attempt__state=AttemptState.STOPPING,
        )
        .exclude(state=MemberState.EXITED)
        .select_related("attempt__queue")
        .order_by("attempt_id", "rank")
    )


def attempts_over_time() -> list[tuple[UUID, int]]:
    """Running attempts that have used up the time limit of their task, with that limit in s."""
    now = clock.now()
    limited = Attempt.objects.filter(
        state=AttemptState.RUNNING, started_at__isnull=False, task__time_limit_s__isnull=False
    )
    rows = limited.values_list("pk", "started_at", "task__time_limit_s")
    return [
        (pk, limit_s)
        for pk, started_at, limit_s in rows
        if started_at is not None
        and limit_s is not None
        and now - started_at >= timedelta(seconds=limit_s)
    ]


def gangs_torn(bound_s: float) -> list[tuple[UUID, str]]:
    """Starting gangs of which a member has run for `bound_s` without all others, and why."""
    since = clock.now() - timedelta(seconds=bound_s)
    late = Member.objects.filter(
        attempt__state=AttemptState.STARTING,
        attempt__replicas__gt=1,
        state__in=[MemberState.ALLOCATED, MemberState.STARTING],
        attempt__in=Member.objects.filter(
            state=MemberState.RUNNING, released_at__isnull=True, started_at__lt=since
        ).values("attempt_id"),
    ).order_by("attempt_id", "rank")
    found: dict[UUID, str] = {}
    for attempt_id, rank, detail in late.values_list("attempt_id", "rank", "detail"):
        found.setdefault(
            attempt_id, f"Member {rank} did not start in {bound_s:g} s. {detail}".strip()
        )
    return list(found.items())


def attempts_stranded() -> list[UUID]:
    """Attempts whose launch has not begun, and whose node cannot be reached.

    Many wait for victims to end first, and their node may never report that.
    """
    return list(
        Attempt.objects.filter(
            state=AttemptState.ALLOCATED, members__node__state__in=UNREACHED_STATES
        )
        .order_by("pk")
        .distinct()
        .values_list("pk", flat=True)
    )


def attempts_to_suspect() -> list[UUID]:
    """Attempts with a member that may be running on a node that is silent."""
    members = Member.objects.filter(
        Q(state=MemberState.RUNNING) | Q(state=MemberState.STARTING, launched_at__isnull=False),
        released_at__isnull=True,
        attempt__state__in=[AttemptState.STARTING, AttemptState.RUNNING],
        node__state__in=UNREACHED_STATES,
    )
    return list(members.order_by("attempt_id").values_list("attempt_id", flat=True).distinct())


def attempts_to_unsuspect() -> list[UUID]:
    """Suspect attempts all of whose nodes answer again."""
    silent = Member.objects.filter(
        released_at__isnull=True, node__state__in=UNREACHED_STATES
    ).exclude(state=MemberState.EXITED)
    return list(
        Attempt.objects.filter(state=AttemptState.SUSPECT)
        .exclude(pk__in=silent.values("attempt_id"))
        .values_list("pk", flat=True)
    )


def members_unsent() -> list[int]:
    """Members that were never launched, of attempts that are to stop."""
    return list(
        Member.objects.filter(
            attempt__state=AttemptState.STOPPING,
            state=MemberState.ALLOCATED,
            launched_at__isnull=True,
            released_at__isnull=True,
        ).values_list("pk", flat=True)
    )


def members_to_release(node_ids: Iterable[int], *, token: str) -> list[tuple[int, str]]:
    """Members on silent nodes of which a process that is gone never sent the launch."""
    rows = Member.objects.filter(
        node__in=list(node_ids),
        node__state__in=UNREACHED_STATES,
        released_at__isnull=True,
        state=MemberState.STARTING,
        launched_at__isnull=True,
    )
    return list(rows.exclude(lock_token=token).values_list("pk", "lock_token"))


def members_switched_off(node_ids: Iterable[int]) -> list[tuple[int, int]]:
    """Members on nodes that an administrator declared off: id and node."""
    rows = _maybe_alive().filter(node__in=list(node_ids), node__off_at__isnull=False)
    return [(pk, node or 0) for pk, node in rows.values_list("pk", "node")]


def members_launched(node_id: int) -> list[int]:
    """Members on the node that were launched and are not known to have ended."""
    return list(_maybe_alive().filter(node=node_id).order_by("pk").values_list("pk", flat=True))


def members_leased(node_id: int, *, boot_id: str) -> list[tuple[int, float]]:
    """Members on the node that end by themselves, and when on that boot's clock."""
    rows = _maybe_alive().filter(node=node_id, boot_id=boot_id, lease_until_s__isnull=False)
    found = rows.values_list("pk", "lease_until_s")
    return [(pk, until) for pk, until in found if until is not None]


def _maybe_alive() -> QuerySet[Member]:
    """Members that were launched and are not known to have ended."""
    return Member.objects.filter(
        released_at__isnull=True,
        state__in=[MemberState.STARTING, MemberState.RUNNING],
        attempt__state__in=LIVE_ATTEMPT_STATES,
    )


def maintenance_left_s() -> float:
    """How long planned work on the control plane may still last; 0 without any."""
    until = Installation.objects.values_list("maintenance_until", flat=True).get(id=1)
    return max(0.0, (until - clock.now()).total_seconds()) if until else 0.0
