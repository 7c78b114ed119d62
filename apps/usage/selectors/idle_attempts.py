"""Tasks that hold GPUs which they do not use."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from apps.accounts.models import User
from apps.core import clock
from apps.core.units import milli_text
from apps.tasks.models import Attempt
from apps.tasks.selectors.idle_attempts import IDLE_AFTER, attempts_idle
from apps.tasks.selectors.visibility import tasks_seen_with_queue
from apps.usage.selectors.current_usage import GPU

MOST_LISTED = 200
_NAMED = ("task__owner", "policy", "queue")
# Without the content of tasks.
_COLUMNS = (
    *("request", "replicas", "task__name", "task__owner__username", "policy__name"),
    "queue__name",
)


@dataclass(frozen=True, slots=True)
class IdleAttempt:
    """A task whose GPUs have all been idle since then: `gpu` in thousandths."""

    task_id: UUID
    name: str
    owner: str
    policy_id: int
    policy: str
    queue_id: int
    queue: str
    gpu: int
    since: datetime
    idle_s: float

    @property
    def gpus(self) -> str:
        """Whole ones and shares, as in requests."""
        return milli_text(self.gpu)

    @property
    def gpu_s(self) -> float:
        """GPU seconds that it has held without using them, up to now."""
        return self.gpu / 1000 * self.idle_s


def idle_attempts(
    viewer: User, *, after: timedelta = IDLE_AFTER, now: datetime | None = None
) -> list[IdleAttempt]:
    """What the viewer sees of them, the most idle GPU time first, in one query.

    Args:
        after: shorter times do not count.
    """
    now = now or clock.now()
    visible = tasks_seen_with_queue(viewer).order_by().values("pk")
    rows = (
        attempts_idle(after, now).filter(task__in=visible).select_related(*_NAMED).only(*_COLUMNS)
    )
    found = [
        IdleAttempt(
            task_id=one.task_id,
            name=one.task.name,
            owner=one.task.owner.get_username(),
            policy_id=one.policy_id,
            policy=one.policy.name,
            queue_id=one.queue_id,
            queue=one.queue.name,
            gpu=_gpu(one),
            since=one.idle_since,
            idle_s=(now - one.idle_since).total_seconds(),
        )
        for one in rows
    ]
    return sorted(found, key=lambda one: -one.gpu_s)[:MOST_LISTED]


def idle_gpu_by_policy(*, after: timedelta = IDLE_AFTER) -> Counter[int]:
    """Thousandths of GPU that idle tasks of each policy itself hold, in one query."""
    found: Counter[int] = Counter()
    for one in attempts_idle(after, clock.now()):
        found[one.policy_id] += _gpu(one)
    return found


def _gpu(attempt: Attempt) -> int:
    gpu: int = attempt.request.get(GPU, 0)
    return gpu * attempt.replicas
