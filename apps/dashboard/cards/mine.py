"""A policy through the eyes of one of its people: what they hold of it and wait for."""

from dataclasses import dataclass

from django.db.models import Q

from apps.accounts.models import User
from apps.allocation.explaining import Names, is_suspended
from apps.core.units import quantities_milli
from apps.dashboard.cards.bars import UseBar
from apps.dashboard.cards.reasons import ReasonView, explain, stored_reasons
from apps.dashboard.cards.words import ordinal
from apps.dashboard.live import Sharing, card, key_id, topics_of
from apps.dashboard.selectors.use import GPU, held_now
from apps.policies.selectors import policies_visible_to, policy_family
from apps.tasks.models import Task
from apps.tasks.selectors.waiting import place_in_line
from apps.tasks.states import TaskState

MOST = 5


@dataclass(frozen=True, slots=True)
class OwnWaiting:
    task: Task
    place: str
    reason: ReasonView


@dataclass(frozen=True, slots=True)
class PolicyMine:
    """Thousandths of GPU; `limit` is what one person may hold, None for no such limit."""

    use: int
    running: int
    limit: int | None
    bar: UseBar
    waiting: tuple[OwnWaiting, ...]
    waiting_count: int
    policy_id: int
    topics: tuple[str, ...]
    announce: str = ""


@card("policy_mine", Sharing.NOBODY)
def load_policy_mine(user: User, key: str) -> PolicyMine | None:
    """The person's own use of the policy, and their first waiting tasks there."""
    policy = policies_visible_to(user).filter(pk=key_id(key)).first()
    if policy is None:
        return None
    # With everything below it, as in its other figures.
    family = policy_family(policy.pk)
    held = held_now(Q(policy__in=family, task__owner=user))
    use = sum(one.gpu for one in held)
    limit = quantities_milli(policy.user_limit or {}).get(GPU)
    tasks = Task.objects.filter(owner=user, queue__policy__in=family, state=TaskState.QUEUED)
    first = tasks.select_related("run", "queue__profile").order_by("submitted_at", "pk")[:MOST]
    suspended = is_suspended()
    return PolicyMine(
        use=use,
        running=len(held),
        limit=limit,
        bar=UseBar.of(used=use, limit=limit, over=0),
        waiting=tuple(_waiting(task, user, suspended=suspended) for task in first),
        waiting_count=tasks.count(),
        policy_id=policy.pk,
        topics=topics_of("policy", family),
    )


def _waiting(task: Task, user: User, *, suspended: bool) -> OwnWaiting:
    place = place_in_line(task)
    is_head = task.run is not None and task.run.head_id == task.pk
    reasons = stored_reasons(task, place=None if is_head else place)
    names = Names.of(user, task, reasons)
    return OwnWaiting(task, ordinal(place), explain(reasons, names, suspended=suspended))
