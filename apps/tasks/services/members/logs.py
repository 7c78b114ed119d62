"""The output of tasks, stored with their attempt, within a bound."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from apps.core.notifications import after_commit
from apps.tasks.log_masks import MOST_BYTES as OVERLAP_BYTES
from apps.tasks.log_masks import mask_piece
from apps.tasks.models import Attempt, AttemptLog, Member
from apps.tasks.selectors.log_needles import log_needles

# Of one member; the rest stays on the node, and the cut is marked.
MOST_BYTES = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogChange:
    """The changes of a piece; `ends` are stored pieces whose end belongs to a secret."""

    known: int
    start: int
    end: int
    data: bytes
    ends: dict[int, bytes]


def log_append(
    *,
    member_id: int,
    offset: int,
    content: bytes,
    at: datetime,
    guard: Callable[[], AbstractContextManager[None]] = transaction.atomic,
) -> int:
    """Store a piece that begins at byte `offset` of the member's output.

    Bytes that are stored already are not stored again. Secrets are masked before the transaction,
    because the work grows with the piece.

    Args:
        guard: the transaction in which it is stored.

    Returns:
        The offset from which to go on.
    """
    change = _log_change(member_id, offset, content)
    if not change.end > change.known:
        return change.known
    with guard():
        # The attempt first, as in every transaction that writes both.
        attempts = Attempt.objects.select_for_update(of=("self",))
        attempt = attempts.get(members=member_id)
        member = Member.objects.get(pk=member_id)
        if member.log_offset != change.known:
            # Another process has stored a piece meanwhile: the node is asked for the rest again.
            return member.log_offset
        for pk, data in change.ends.items():
            AttemptLog.objects.filter(pk=pk).update(data=data)
        if change.data:
            AttemptLog.objects.create(
                attempt=attempt, rank=member.rank, offset=change.start, at=at, data=change.data
            )
        # A gap means that the node dropped bytes: the page shows the cut.
        is_cut = change.start > change.known or change.start + len(change.data) < change.end
        Member.objects.filter(pk=member_id).update(log_offset=change.end)
        Attempt.objects.filter(pk=attempt.pk).update(
            log_bytes=attempt.log_bytes + len(change.data),
            log_is_cut=attempt.log_is_cut or is_cut,
        )
        after_commit(topics=[f"log.{attempt.task_id}"])
        return change.end


def _log_change(member_id: int, offset: int, content: bytes) -> LogChange:
    """The change that stores a piece, without secrets."""
    member = Member.objects.select_related("attempt__task__owner").get(pk=member_id)
    known = member.log_offset
    fresh = content[max(0, known - offset) :]
    start = max(offset, known)
    kept = fresh[: max(0, MOST_BYTES - start)]
    ends: dict[int, bytes] = {}
    needles = log_needles(member.attempt) if kept else ()
    if needles:
        before = _pieces_before(member, start)
        written = b"".join(bytes(piece.data) for piece in before)[-OVERLAP_BYTES:]
        hidden, kept = mask_piece(written, kept, needles)
        if hidden != written:
            ends = _with_end(before, hidden)
    return LogChange(known, start, start + len(fresh), kept, ends)


def _pieces_before(member: Member, start: int) -> list[AttemptLog]:
    """Stored pieces in which a secret may begin: a task may write byte by byte."""
    pieces = AttemptLog.objects.filter(attempt_id=member.attempt_id, rank=member.rank)
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
    """The new data of these pieces, by row, where together they end with `end`."""
    written = b"".join(bytes(piece.data) for piece in pieces)
    whole = written[: len(written) - len(end)] + end
    start = pieces[0].offset
    return {piece.pk: whole[piece.offset - start :][: len(bytes(piece.data))] for piece in pieces}
