"""Tasks that hold GPUs which they do not use."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Coalesce, Greatest

from apps.accounts.models import User
from apps.core import clock
from apps.core.units import milli_text
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES
from apps.tasks.models import Attempt
from apps.tasks.selectors.visibility import tasks_seen_with_queue
from apps.tasks.services.gpu_use import SLOT
from apps.usage.selectors.current_usage import GPU

IDLE_AFTER = timedelta(minutes=15)
MOST_LISTED = 200


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

    Only what is known: GPUs that were sampled in the last five minutes and told their utilisation.

    Args:
        after: shorter times do not count.
    """
    now = now or clock.now()
    rows = (
        Attempt.objects.filter(
            state__in=LIVE_ATTEMPT_STATES,
            task__in=tasks_seen_with_queue(viewer).order_by().values("pk"),
            use__sampled_at__gte=now - SLOT,
            use__known_ms__gt=0,
            started_at__isnull=False,
        )
        .annotate(idle_since=Greatest(Coalesce("use__used_at", "started_at"), "started_at"))
        .filter(Q(idle_since__lte=now - after))
        .order_by("idle_since")
    )
    found = [
        IdleAttempt(
            task_id=task,
            name=name,
            owner=owner,
            policy_id=policy_id,
            policy=policy,
            queue_id=queue_id,
            queue=queue,
            gpu=request.get(GPU, 0) * replicas,
            since=since,
            idle_s=(now - since).total_seconds(),
        )
        for (
            task,
            name,
            owner,
            policy_id,
            policy,
            queue_id,
            queue,
            request,
            replicas,
            since,
        ) in rows.values_list(
            *("task_id", "task__name", "task__owner__username", "policy_id", "policy__name"),
            *("queue_id", "queue__name", "request", "replicas", "idle_since"),
        )
    ]
    return sorted(found, key=lambda one: -one.gpu_s)[:MOST_LISTED]
