"""What a running task would lose if it were stopped now, and until when it may not be."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from apps.tasks.models import Attempt, Task


@dataclass(frozen=True, slots=True)
class Risk:
    """Of a task that runs.

    `limit_at` is when its time limit ends it; `safe_until` when the least time that its queue
    gives it is over, None where that has passed or there is none; `lost_from` since when work is
    in no checkpoint.
    """

    limit_at: datetime | None
    safe_until: datetime | None
    checkpointed_at: datetime | None
    lost_from: datetime

    @classmethod
    def of(cls, task: Task, attempt: Attempt, *, now: datetime) -> Self | None:
        """None where nothing has started yet."""
        started_at = attempt.started_at
        if started_at is None:
            return None
        safe_until = started_at + timedelta(seconds=attempt.queue.min_runtime_s)
        limit = task.time_limit_s
        return cls(
            limit_at=started_at + timedelta(seconds=limit) if limit else None,
            safe_until=safe_until if safe_until > now else None,
            checkpointed_at=attempt.checkpointed_at,
            lost_from=attempt.checkpointed_at or started_at,
        )
