"""A task of a queue that lends, running on a lease."""

from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.services import run_pass
from apps.policies.models import Queue
from apps.tasks.models import Attempt
from apps.tasks.services.members.launch import (
    LaunchRecord,
    member_claim_start,
    member_confirm_start,
    member_note_start,
)
from tests.allocation.state import enqueue


def start_leased(owner: User, queue: Queue, *, until_s: float) -> Attempt:
    """Enqueued, placed and started by the process `me`, on the boot `boot` of its node.

    Args:
        until_s: the end of its lease, on the node's clock.
    """
    Queue.objects.update(on_node_loss="requeue")
    enqueue(owner, queue)
    run_pass()
    attempt = Attempt.objects.get()
    pk = attempt.members.get().pk
    member_claim_start(member_id=pk, token="me")
    member_confirm_start(member_id=pk, token="me", launching=LaunchRecord("boot", until_s))
    member_note_start(member_id=pk, at=timezone.now())
    return attempt
