"""Members of a gang wait for one another before any of them is launched."""

from typing import Final

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from apps.core.doorbell import after_commit
from apps.tasks.models import Attempt, Holding
from apps.tasks.services.attempts.rows import locked, tell
from apps.tasks.states import LIVE_ATTEMPT_STATES, AttemptState, MemberState

# Where members meet: on the node of the first one, a port for each gang that lives there.
PORTS: Final = range(29_500, 30_500)
WAITING = "Its node is ready. It starts when those of the other members are."


def member_ready(*, holding_id: int, token: str) -> int | None:
    """The node of a claimed member has all that its launch needs.

    To be called as the process that serves the node: ports of one node are given out one by one.

    Returns:
        The port at which the gang meets: the member is to be launched. None: another member is
        not so far. This one was given back, and is found again when all are.
    """
    with transaction.atomic():
        holding = Holding.objects.get(pk=holding_id)
        attempt = locked(holding.attempt_id)
        claimed = Holding.objects.filter(
            pk=holding_id, state=MemberState.STARTING, lock_token=token
        )
        if attempt.state != AttemptState.STARTING:
            return None
        if not claimed.update(ready_at=holding.ready_at or timezone.now()):
            return None
        if holding.rank == 0 and attempt.master_port is None:
            attempt.master_port = _free_port(holding)
            Attempt.objects.filter(pk=attempt.pk).update(master_port=attempt.master_port)
        if members_not_ready().filter(attempt=attempt).exists():
            _give_back(attempt, claimed)
            return None
        if holding.ready_at is None:
            # The last one: the others are waiting for it.
            after_commit(tasks=["execution.look"])
        return attempt.master_port or PORTS[0]


def members_not_ready() -> QuerySet[Holding]:
    """Members that were never launched, and whose nodes do not have all that it takes."""
    return Holding.objects.filter(
        ready_at__isnull=True,
        launched_at__isnull=True,
        state__in=[MemberState.ALLOCATED, MemberState.STARTING],
    )


def _give_back(attempt: Attempt, claimed: QuerySet[Holding]) -> None:
    """As before the claim; nothing has failed, so nothing is put off."""
    claimed.update(state=MemberState.ALLOCATED, lock_token="", detail=WAITING)
    if not attempt.holdings.exclude(state=MemberState.ALLOCATED).exists():
        Attempt.objects.filter(pk=attempt.pk, state=attempt.state).update(
            state=AttemptState.ALLOCATED
        )
    tell(attempt, [])


def _free_port(first: Holding) -> int:
    taken = set(
        Attempt.objects.filter(
            state__in=LIVE_ATTEMPT_STATES,
            master_port__isnull=False,
            holdings__rank=0,
            holdings__node=first.node_id,
        ).values_list("master_port", flat=True)
    )
    return next((port for port in PORTS if port not in taken), PORTS[0])
