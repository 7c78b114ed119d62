"""Tasks that hold GPUs which they do not use."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Exists, F, OuterRef, Q

from apps.access.permissions import rows_with_permission
from apps.accounts.models import User
from apps.core import clock
from apps.core.units import milli_text
from apps.policies.selectors import policy_family
from apps.tasks.lifecycle.states import AttemptState
from apps.tasks.models import Task
from apps.tasks.permissions import MANAGE
from apps.tasks.selectors.idle_attempts import IDLE_AFTER, attempts_idle
from apps.tasks.selectors.visibility import tasks_seen_with_queue
from apps.usage.selectors.current_usage import GPU

MOST_LISTED = 200
_NAMED = ("task__owner", "policy", "queue")
# Without the content of tasks.
_COLUMNS = (
    *("request", "replicas", "state", "task__name", "task__owner__username", "policy__name"),
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
    # When its queue stops it at the earliest.
    stop_at: datetime | None
    is_exempt: bool
    may_abort: bool

    @property
    def gpus(self) -> str:
        """Whole ones and shares, as in requests."""
        return milli_text(self.gpu)

    @property
    def gpu_s(self) -> float:
        """GPU seconds that it has held without using them, up to now."""
        return self.gpu / 1000 * self.idle_s


@dataclass(frozen=True, slots=True)
class IdleFilter:
    """Which of them: those of a policy with those below it, of a queue, of a user by name."""

    policy: int | None = None
    queue: int | None = None
    owner: str = ""

    @property
    def condition(self) -> Q:
        found = Q()
        if self.policy is not None:
            found &= Q(policy__in=policy_family(self.policy))
        if self.queue is not None:
            found &= Q(queue=self.queue)
        if self.owner:
            found &= Q(task__owner__username=self.owner)
        return found


EVERY = IdleFilter()


def idle_attempts(
    viewer: User,
    wanted: IdleFilter = EVERY,
    *,
    after: timedelta = IDLE_AFTER,
    now: datetime | None = None,
) -> list[IdleAttempt]:
    """What the viewer sees of them, the most idle GPU time first, in one query.

    Args:
        after: shorter times do not count.
    """
    now = now or clock.now()
    visible = tasks_seen_with_queue(viewer).order_by().values("pk")
    managed = rows_with_permission(Task, viewer, MANAGE).filter(pk=OuterRef("task"))
    rows = attempts_idle(after, now).filter(wanted.condition, task__in=visible)
    rows = rows.annotate(
        may_abort=Exists(managed),
        stop_at=F("idle_warning__stop_at"),
        exempted_at=F("task__idle_exemption__at"),
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
            gpu=_gpu(one.request, one.replicas),
            since=one.idle_since,
            idle_s=(now - one.idle_since).total_seconds(),
            stop_at=one.stop_at,
            is_exempt=one.exempted_at is not None,
            may_abort=one.may_abort and one.state != AttemptState.STOPPING,
        )
        for one in rows.select_related(*_NAMED).only(*_COLUMNS)
    ]
    return sorted(found, key=lambda one: -one.gpu_s)[:MOST_LISTED]


def idle_gpu_by_policy(*, after: timedelta = IDLE_AFTER) -> Counter[int]:
    """Thousandths of GPU that idle tasks of each policy itself hold, in one query."""
    found: Counter[int] = Counter()
    rows = attempts_idle(after, clock.now()).order_by()
    for policy, request, replicas in rows.values_list("policy", "request", "replicas"):
        found[policy] += _gpu(request, replicas)
    return found


def _gpu(request: Mapping[str, int], replicas: int) -> int:
    return request.get(GPU, 0) * replicas
