"""Attempts of a task, and their output."""

from dataclasses import dataclass

from django.db.models import Prefetch, QuerySet

from apps.nodes.models import Volume, VolumeScope
from apps.tasks.models import Attempt, AttemptLog, Member, Task

LOG_BYTES = 256 * 1024
MOST_LOG_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogPart:
    """Bytes of a member's output from `offset`; go on reading at `next_offset`.

    `offset` is greater than the requested one where earlier bytes were dropped.
    """

    data: bytes
    offset: int
    next_offset: int


def attempts_of(task: Task) -> QuerySet[Attempt]:
    """The attempts of a task, the latest first, with members, nodes and devices; four queries."""
    members = Member.objects.select_related("node").prefetch_related("held_devices__device")
    return (
        Attempt.objects.filter(task=task)
        .select_related("pool", "use")
        .prefetch_related(Prefetch("members", queryset=members))
        .order_by("-generation")
    )


def latest_attempt(task: Task, generation: int | None = None) -> Attempt | None:
    """The attempt of this generation, else the last one."""
    attempts = Attempt.objects.filter(task=task)
    if generation is not None:
        return attempts.filter(generation=generation).first()
    return attempts.order_by("-generation").first()


@dataclass(frozen=True, slots=True)
class Resumption:
    """Whether a task that runs again may find its saved state; `words` where it cannot.

    With `is_said` an earlier attempt reported that it saved; otherwise only its folder can tell.
    """

    is_possible: bool
    is_said: bool = False
    words: str = ""


def resumption_of(attempt: Attempt) -> Resumption:
    """What an attempt finds of earlier ones. A node's own volume is found on that node only.

    Without a checkpoint volume only the task's own reports say what is saved.
    """
    earlier = Attempt.objects.filter(
        task=attempt.task_id, generation__lt=attempt.generation, started_at__isnull=False
    )
    last = earlier.order_by("-generation").first()
    if last is None:
        return Resumption(is_possible=False)
    is_said = earlier.filter(checkpointed_at__isnull=False).exists()
    name = attempt.task.spec.checkpoint_volume
    volume = Volume.objects.filter(name=name, removed_at__isnull=True).first() if name else None
    if volume is None:
        return Resumption(is_possible=is_said, is_said=is_said)
    before, now = _nodes_of(last), _nodes_of(attempt)
    if volume.scope != VolumeScope.NODE or before == now:
        return Resumption(is_possible=True, is_said=is_said)
    # Their names could name a pool that the owner does not see.
    where = "another node" if len(before) == 1 else "other nodes"
    words = f"It starts from the beginning: what it saved is on {where}."
    return Resumption(is_possible=False, words=words)


def _nodes_of(attempt: Attempt) -> dict[int, str]:
    rows = Member.objects.filter(attempt=attempt, node__isnull=False).order_by("rank")
    return dict(rows.values_list("rank", "node__name"))


def log_from(attempt: Attempt, *, rank: int, offset: int, most: int = LOG_BYTES) -> LogPart:
    """A member's output from byte `offset`, at most `most` bytes."""
    pieces = AttemptLog.objects.filter(attempt=attempt, rank=rank)
    # The piece that holds `offset` may begin before it.
    before = pieces.filter(offset__lte=offset).order_by("-offset").first()
    rows = pieces.filter(offset__gte=before.offset if before else offset).order_by("offset")
    data = b""
    start = offset
    for piece in rows.iterator(chunk_size=16):
        content = bytes(piece.data)
        skipped = max(0, offset - piece.offset)
        content = content[skipped:]
        if not content:
            continue
        if not data:
            start = piece.offset + skipped
        elif piece.offset != start + len(data):
            break
        data += content
        if len(data) >= most:
            break
    data = data[:most]
    return LogPart(data, start, start + len(data))


def log_tail(attempt: Attempt, *, rank: int, most: int = LOG_BYTES) -> LogPart:
    """The last bytes of a member's output."""
    pieces = AttemptLog.objects.filter(attempt=attempt, rank=rank)
    last = pieces.order_by("-offset").first()
    if last is None:
        return LogPart(b"", 0, 0)
    end = last.offset + len(bytes(last.data))
    return log_from(attempt, rank=rank, offset=max(0, end - most), most=most)
