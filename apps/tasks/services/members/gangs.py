"""Members of a gang wait for one another before any of them is launched."""

from typing import Final

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from apps.core.notifications import NOTIFY_EXECUTION, after_commit
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES, AttemptState, MemberState
from apps.tasks.lifecycle.transitions import RELEASE_LAUNCH
from apps.tasks.lifecycle.writers import attempt_transition
from apps.tasks.models import Attempt, Member
from apps.tasks.services.attempts.records import attempt_lock, attempt_record

# Rendezvous ports, on the node of the first member: one per live gang of that node.
PORTS: Final = range(29_500, 30_500)
WAITING = "Its node is ready. It starts when those of the other members are."


def member_note_ready(*, member_id: int, token: str) -> int | None:
    """Note that the node of a claimed member has all that its launch needs.

    Only the process that serves the node calls this, so ports of one node are given one by one.

    Returns:
        The rendezvous port of the gang: the member is to be launched. None: another member is not
        ready. The claim was released, and the member is found again when all are ready.
    """
    with transaction.atomic():
        member = Member.objects.get(pk=member_id)
        attempt = attempt_lock(member.attempt_id)
        claimed = Member.objects.filter(pk=member_id, state=MemberState.STARTING, lock_token=token)
        if attempt.state != AttemptState.STARTING:
            return None
        if not claimed.update(ready_at=member.ready_at or timezone.now()):
            return None
        if member.rank == 0 and attempt.master_port is None:
            attempt.master_port = _free_port(member)
            Attempt.objects.filter(pk=attempt.pk).update(master_port=attempt.master_port)
        if members_not_ready().filter(attempt=attempt).exists():
            _release_claim(attempt, claimed)
            return None
        if member.ready_at is None:
            # The last one: the others wait for it.
            after_commit(notify=[NOTIFY_EXECUTION])
        return attempt.master_port or PORTS[0]


def members_not_ready() -> QuerySet[Member]:
    """Members that were never launched and whose nodes are not ready."""
    return Member.objects.filter(
        ready_at__isnull=True,
        launched_at__isnull=True,
        state__in=[MemberState.ALLOCATED, MemberState.STARTING],
    )


def _release_claim(attempt: Attempt, claimed: QuerySet[Member]) -> None:
    """Release the claim without a delay, because nothing has failed."""
    claimed.update(state=MemberState.ALLOCATED, lock_token="", detail=WAITING)
    if not attempt.members.exclude(state=MemberState.ALLOCATED).exists():
        attempt_transition(RELEASE_LAUNCH, attempt)
    attempt_record(attempt, [])


def _free_port(first: Member) -> int:
    taken = set(
        Attempt.objects.filter(
            state__in=LIVE_ATTEMPT_STATES,
            master_port__isnull=False,
            members__rank=0,
            members__node=first.node_id,
        ).values_list("master_port", flat=True)
    )
    return next((port for port in PORTS if port not in taken), PORTS[0])
