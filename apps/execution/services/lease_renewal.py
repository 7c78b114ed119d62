"""Leases of a node's members: extended while the node answers, and judged when it does not."""

import time
from collections.abc import Iterable

import structlog
from django.conf import settings

from apps.execution.leases import NodeClock, is_over, renewed_lease, seconds_until_over
from apps.execution.protocol.requests import LeaseRenewal
from apps.execution.selectors import maintenance_left_s, members_leased
from apps.execution.services.inventory import node_mark_silent
from apps.execution.services.node_ownership import as_server
from apps.nodes.models import Node
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES, MemberState
from apps.tasks.models import Member
from apps.tasks.services.attempts.next_state import MemberResult
from apps.tasks.services.members.exits import member_note_exit

log = structlog.get_logger(__name__)

# The helper refuses a request that names more.
MOST_LEASES = 10_000
ALIVE = (MemberState.STARTING, MemberState.RUNNING)


def leases_renew(
    node: Node, members: Iterable[Member], clock: NodeClock, token: str
) -> tuple[LeaseRenewal, ...]:
    """The lease renewals to send to the node. Each is in the database before it is returned.

    All are sent every time: the answer that got lost may have been the one that confirmed them.

    Raises:
        NotServing: another process has taken the node.
    """
    leased = {
        one.pk: one
        for one in members
        if one.lease_until_s is not None and one.boot_id == clock.boot_id and _is_alive(one)
    }
    if not leased:
        return ()
    _renew(node, leased, clock, token)
    to_renew = sorted(leased.values(), key=lambda one: one.lease_until_s or 0.0)[:MOST_LEASES]
    return tuple(
        LeaseRenewal(
            task_id=str(one.attempt.task_id),
            generation=one.attempt.generation,
            rank=one.rank,
            until_s=one.lease_until_s or 0.0,
        )
        for one in to_renew
    )


def _is_alive(member: Member) -> bool:
    return member.state in ALIVE and member.attempt.state in LIVE_ATTEMPT_STATES


def _renew(node: Node, leased: dict[int, Member], clock: NodeClock, token: str) -> None:
    """Extend those that need it; what is over by now leaves `leased`."""
    at_least_s = maintenance_left_s()
    due: dict[int, float] = {}
    for pk, one in leased.items():
        until = renewed_lease(
            one.lease_until_s or 0.0, clock, lease_s=settings.LEASE_S, at_least_s=at_least_s
        )
        if until is not None:
            due[pk] = until
    if not due:
        return
    with as_server(node.pk, token):
        rows = Member.objects.filter(pk__in=due, released_at__isnull=True, state__in=ALIVE)
        # The same for all: it is counted from the one moment at which the node last answered.
        until = max(due.values())
        rows.filter(lease_until_s__lt=until).update(lease_until_s=until)
        now_there = dict(rows.values_list("pk", "lease_until_s"))
    for pk in due:
        if pk in now_there:
            leased[pk].lease_until_s = now_there[pk]
        else:
            del leased[pk]


def leases_expire(node: Node, last_clock: NodeClock, token: str) -> float | None:
    """Give up members whose lease is over and whose end was not reported.

    Args:
        last_clock: what the node's clock showed when it last answered, or showed at least when this
            process took it over.

    Returns:
        Seconds until the next of them is over; None without any.

    Raises:
        NotServing: another process has taken the node.
    """
    soonest: float | None = None
    for pk, until in members_leased(node.pk, boot_id=last_clock.boot_id):
        left_s = last_clock.read_at + seconds_until_over(until, last_clock) - time.monotonic()
        if left_s > 0:
            soonest = left_s if soonest is None else min(soonest, left_s)
        else:
            _lose(node, pk, last_clock, token)
    return soonest


def _lose(node: Node, member_id: int, last_clock: NodeClock, token: str) -> None:
    words = "node_loss: the node is silent, and has ended the task when its lease was over."
    with as_server(node.pk, token):
        # Checked again, now that no process can renew it.
        until = Member.objects.values_list("lease_until_s", flat=True).get(pk=member_id)
        if until is None or not is_over(until, last_clock, at=time.monotonic()):
            return
        if member_note_exit(member_id=member_id, ended=MemberResult(None, words, is_lost=True)):
            node_mark_silent(node, words)
            log.warning("member.lost", node=node.pk, member=member_id)
