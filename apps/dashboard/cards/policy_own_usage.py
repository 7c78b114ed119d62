"""The usage and waiting tasks of one user in a policy."""

from dataclasses import dataclass

from django.db.models import Q

from apps.access.selectors import policies_visible_to
from apps.accounts.models import User
from apps.allocation.explanation import ReaderNames
from apps.core.units import quantities_milli
from apps.dashboard.cards.bars import UsageBar
from apps.dashboard.cards.reasons import ReasonView, explain, stored_reasons
from apps.dashboard.cards.words import ordinal
from apps.dashboard.live import Sharing, card, key_id, topics_of
from apps.nodes.selectors import is_suspended
from apps.policies.selectors import policy_family
from apps.tasks.models import Task
from apps.tasks.selectors.eligibility import WAITING
from apps.tasks.selectors.queue_order import queue_position
from apps.usage.selectors.current_usage import GPU, live_attempts

MOST = 5


@dataclass(frozen=True, slots=True)
class OwnWaitingTask:
    task: Task
    position: str
    reason: ReasonView


@dataclass(frozen=True, slots=True)
class PolicyOwnUsage:
    """Thousandths of GPU; `limit` is what one person may hold, None for no such limit."""

    usage: int
    running: int
    limit: int | None
    bar: UsageBar
    waiting: tuple[OwnWaitingTask, ...]
    waiting_count: int
    policy_id: int
    topics: tuple[str, ...]
    announce: str = ""


@card("policy_own_usage", Sharing.NOBODY)
def load_policy_own_usage(user: User, key: str) -> PolicyOwnUsage | None:
    """The person's own use of the policy, and their first waiting tasks there."""
    policy = policies_visible_to(user).filter(pk=key_id(key)).first()
    if policy is None:
        return None
    # With everything below it, as in its other figures.
    family = policy_family(policy.pk)
    attempts = live_attempts(Q(policy__in=family, task__owner=user))
    usage = sum(one.gpu for one in attempts)
    limit = quantities_milli(policy.user_limit or {}).get(GPU)
    tasks = Task.objects.filter(WAITING, owner=user, queue__policy__in=family)
    first = tasks.select_related("task_group", "queue__profile").order_by("submitted_at", "pk")[
        :MOST
    ]
    suspended = is_suspended()
    return PolicyOwnUsage(
        usage=usage,
        running=len(attempts),
        limit=limit,
        bar=UsageBar.of(used=usage, limit=limit, over_quota=0),
        waiting=tuple(_waiting(task, user, suspended=suspended) for task in first),
        waiting_count=tasks.count(),
        policy_id=policy.pk,
        topics=topics_of("policy", family),
    )


def _waiting(task: Task, user: User, *, suspended: bool) -> OwnWaitingTask:
    position = queue_position(task)
    is_head = task.task_group is not None and task.task_group.head_id == task.pk
    reasons = stored_reasons(task, position=None if is_head else position)
    names = ReaderNames.of(user, task, reasons)
    return OwnWaitingTask(task, ordinal(position), explain(reasons, names, suspended=suspended))
