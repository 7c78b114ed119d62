"""What tasks write, stored with their attempt, bounded."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from apps.core.doorbell import after_commit
from apps.tasks.masking import MOST_BYTES as OVERLAP_BYTES
from apps.tasks.masking import masked
from apps.tasks.models import Attempt, AttemptLog, Holding
from apps.tasks.selectors.hiding import hidden_in_log

# Of one member; what comes after is left on the node and the cut is marked.
MOST_BYTES = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogChange:
    """What a piece changes; `ends` are stored pieces whose end turned out to be of a secret."""

    known: int
    start: int
    end: int
    data: bytes
    ends: dict[int, bytes]


def log_append(
    *,
    holding_id: int,
    offset: int,
    content: bytes,
    at: datetime,
    guard: Callable[[], AbstractContextManager[None]] = transaction.atomic,
) -> int:
    """Store a piece that begins at byte `offset` of the member's output.

    A piece that was stored before, or a part of it, is not stored again. Secrets are masked,
    before the transaction: the work grows with the piece.

    Args:
        guard: the transaction in which it is stored.

    Returns:
        The offset from which to go on.
    """
    change = _log_change(holding_id, offset, content)
    if not change.end > change.known:
        return change.known
    with guard():
        # The attempt first, as everybody does who writes to both.
        attempts = Attempt.objects.select_for_update(of=("self",))
        attempt = attempts.get(holdings=holding_id)
        holding = Holding.objects.get(pk=holding_id)
        if holding.log_offset != change.known:
            # Somebody else has stored one since: the node is asked for the rest again.
            return holding.log_offset
        for pk, data in change.ends.items():
            AttemptLog.objects.filter(pk=pk).update(data=data)
        if change.data:
            AttemptLog.objects.create(
                attempt=attempt, rank=holding.rank, offset=change.start, at=at, data=change.data
            )
        # A hole means that the node threw bytes away: the page shows the cut.
        is_cut = change.start > change.known or change.start + len(change.data) < change.end
        Holding.objects.filter(pk=holding_id).update(log_offset=change.end)
        Attempt.objects.filter(pk=attempt.pk).update(
            log_bytes=attempt.log_bytes + len(change.data),
            log_is_cut=attempt.log_is_cut or is_cut,
        )
        after_commit(topics=[f"log.{attempt.task_id}"])
        return change.end


def _log_change(holding_id: int, offset: int, content: bytes) -> LogChange:
    """What is to be stored of a piece, without secrets."""
    holding = Holding.objects.select_related("attempt__task__owner").get(pk=holding_id)
    known = holding.log_offset
    fresh = content[max(0, known - offset) :]
    start = max(offset, known)
    kept = fresh[: max(0, MOST_BYTES - start)]
    ends: dict[int, bytes] = {}
    needles = hidden_in_log(holding.attempt) if kept else ()
    if needles:
        before = _pieces_before(holding, start)
        written = b"".join(bytes(piece.data) for piece in before)[-OVERLAP_BYTES:]
        hidden, kept = masked(written, kept, needles)
        if hidden != written:
            ends = _with_end(before, hidden)
    return LogChange(known, start, start + len(fresh) if fresh else known, kept, ends)


def _pieces_before(holding: Holding, start: int) -> list[AttemptLog]:
    """Stored pieces in which a secret may have begun: a task may write byte by byte."""
    pieces = AttemptLog.objects.filter(attempt_id=holding.attempt_id, rank=holding.rank)
    found: list[AttemptLog] = []
    at = start
    while at > start - OVERLAP_BYTES:
        last = pieces.filter(offset__lt=at).order_by("-offset").first()
        if last is None or last.offset + len(bytes(last.data)) != at:
            break
        found.insert(0, last)
        at = last.offset
    return found


def _with_end(pieces: list[AttemptLog], end: bytes) -> dict[int, bytes]:
    """The data of these pieces, by their rows, once together they end so."""
    written = b"".join(bytes(piece.data) for piece in pieces)
    whole = written[: len(written) - len(end)] + end
    start = pieces[0].offset
    return {piece.pk: whole[piece.offset - start :][: len(bytes(piece.data))] for piece in pieces}
