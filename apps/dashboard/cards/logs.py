"""The log of an attempt: its end, with the count of what was cut before."""

from collections.abc import Iterator
from dataclasses import dataclass

from apps.accounts.models import User
from apps.core.terminal import Line, styled_lines
from apps.dashboard.live import Sharing, card, key_id
from apps.dashboard.selectors.tasks import visible_task
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES
from apps.tasks.models import Attempt, AttemptLog
from apps.tasks.selectors.attempts import LogPart, log_tail
from apps.tasks.selectors.visibility import task_permissions

# What a page shows; the whole log is a download.
SHOWN_BYTES = 64 * 1024
# Of a failed task, where its page says how it ended.
LAST_BYTES, LAST_LINES = 4 * 1024, 8


@dataclass(frozen=True, slots=True)
class LogTab:
    generation: int
    is_here: bool


@dataclass(frozen=True, slots=True)
class TaskLog:
    """`hidden` bytes precede the part that is shown; `is_gone` when the log has expired."""

    task_id: str
    attempt: Attempt | None
    tabs: tuple[LogTab, ...]
    lines: tuple[Line, ...]
    hidden: int
    is_gone: bool
    is_following: bool
    topics: tuple[str, ...]
    announce: str = ""


@card("task_log", Sharing.NOBODY)
def load_task_log(user: User, key: str) -> TaskLog | None:
    """The log of an attempt; `key` is the task's id, and `/<generation>` for an earlier one."""
    pk, _, generation = key.partition("/")
    task = visible_task(user, pk)
    if task is None or not task_permissions(user, task).log:
        return None
    attempts = list(task.attempts.order_by("generation"))
    number = key_id(generation)
    wanted = next((one for one in attempts if one.generation == number), None)
    attempt = wanted or (attempts[-1] if attempts else None)
    part = LogPart(b"", 0, 0)
    if attempt is not None:
        part = log_tail(attempt, rank=0, most=SHOWN_BYTES)
    return TaskLog(
        task_id=str(task.pk),
        attempt=attempt,
        tabs=tuple(LogTab(one.generation, one == attempt) for one in attempts),
        lines=styled_lines(part.data.decode(errors="replace")),
        hidden=part.offset,
        is_gone=attempt is not None and attempt.log_bytes > 0 and not part.data,
        is_following=attempt is not None and attempt.state in LIVE_ATTEMPT_STATES,
        topics=(f"task.{task.pk}", f"log.{task.pk}"),
    )


def last_lines(attempt: Attempt) -> tuple[Line, ...]:
    """The end of the output of the first member that failed."""
    members = attempt.members.all()
    rank = next((one.rank for one in members if one.exit_code not in {None, 0}), 0)
    part = log_tail(attempt, rank=rank, most=LAST_BYTES)
    return styled_lines(part.data.decode(errors="replace"))[-LAST_LINES:]


def log_pieces(attempt: Attempt) -> Iterator[bytes]:
    """The stored log of an attempt, member by member, with a heading between members."""
    rank = 0
    for piece in AttemptLog.objects.filter(attempt=attempt).iterator(chunk_size=16):
        if piece.rank != rank:
            rank = piece.rank
            yield f"\n--- member {rank} ---\n".encode()
        yield bytes(piece.data)
