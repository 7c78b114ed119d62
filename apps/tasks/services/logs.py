"""What tasks write, stored with their attempt, bounded."""

from datetime import datetime

from django.db import transaction

from apps.core.doorbell import after_commit
from apps.tasks.models import Attempt, AttemptLog, Holding

# Of one member; what comes after is left on the node and the cut is marked.
MOST_BYTES = 10 * 1024 * 1024


def log_append(*, holding_id: int, offset: int, content: bytes, at: datetime) -> int:
    """Store a piece that begins at byte `offset` of the member's output.

    A piece that was stored before, or a part of it, is not stored again.

    Returns:
        The offset from which to go on.
    """
    with transaction.atomic():
        # The attempt first, as everybody does who writes to both.
        attempt = Attempt.objects.select_for_update(of=("self",)).get(holdings=holding_id)
        holding = Holding.objects.get(pk=holding_id)
        known = holding.log_offset
        fresh = content[max(0, known - offset) :]
        start = max(offset, known)
        if not fresh:
            return known
        stored = fresh[: max(0, MOST_BYTES - start)]
        if stored:
            AttemptLog.objects.create(
                attempt=attempt, rank=holding.rank, offset=start, at=at, data=stored
            )
        end = start + len(fresh)
        # A hole means that the node threw bytes away: the page shows the cut.
        is_cut = start > known or len(stored) < len(fresh)
        Holding.objects.filter(pk=holding_id).update(log_offset=end)
        Attempt.objects.filter(pk=attempt.pk).update(
            log_bytes=attempt.log_bytes + len(stored), log_is_cut=attempt.log_is_cut or is_cut
        )
        after_commit(topics=[f"log.{attempt.task_id}"])
        return end
