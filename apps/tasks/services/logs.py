"""What tasks write, stored with their attempt, bounded."""

from datetime import datetime

from django.db import transaction

from apps.core.doorbell import after_commit
from apps.tasks.masking import MOST_BYTES as OVERLAP_BYTES
from apps.tasks.masking import masked
from apps.tasks.models import Attempt, AttemptLog, Holding
from apps.tasks.selectors.hiding import hidden_in_log

# Of one member; what comes after is left on the node and the cut is marked.
MOST_BYTES = 10 * 1024 * 1024


def log_append(*, holding_id: int, offset: int, content: bytes, at: datetime) -> int:
    """Store a piece that begins at byte `offset` of the member's output.

    A piece that was stored before, or a part of it, is not stored again. Secrets are masked.

    Returns:
        The offset from which to go on.
    """
    with transaction.atomic():
        # The attempt first, as everybody does who writes to both.
        attempts = Attempt.objects.select_related("task__owner").select_for_update(of=("self",))
        attempt = attempts.get(holdings=holding_id)
        holding = Holding.objects.get(pk=holding_id)
        known = holding.log_offset
        fresh = content[max(0, known - offset) :]
        start = max(offset, known)
        if not fresh:
            return known
        stored = fresh[: max(0, MOST_BYTES - start)]
        if stored:
            stored = _without_secrets(attempt, holding.rank, start, stored)
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


def _without_secrets(attempt: Attempt, rank: int, start: int, content: bytes) -> bytes:
    """The piece without secrets; the one before it is mended where one began there."""
    needles = hidden_in_log(attempt.pk, tuple(attempt.task.owner.redacted_variables))
    if not needles:
        return content
    pieces = AttemptLog.objects.filter(attempt=attempt, rank=rank, offset__lt=start)
    last = pieces.order_by("-offset").first()
    written = bytes(last.data) if last is not None and _end(last) == start else b""
    before, hidden = masked(written[-OVERLAP_BYTES:], content, needles)
    if last is not None and before != written[-OVERLAP_BYTES:]:
        pieces.filter(pk=last.pk).update(data=written[: len(written) - len(before)] + before)
    return hidden


def _end(piece: AttemptLog) -> int:
    return piece.offset + len(bytes(piece.data))
