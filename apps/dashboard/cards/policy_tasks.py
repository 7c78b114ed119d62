"""The tasks that hold resources of a policy now."""

from dataclasses import dataclass

from django.db.models import Q

from apps.access.selectors import policies_visible_to, queues_visible_to
from apps.accounts.models import User
from apps.dashboard.live import Sharing, card, key_id, topics_of
from apps.policies.selectors import policy_family
from apps.usage.selectors.current_usage import (
    LiveAttempt,
    amounts_of,
    family_in,
    live_attempts,
    over_quota_tasks,
)
from apps.usage.selectors.waiting_tasks import names_of_tasks

MOST_TASKS = 12


@dataclass(frozen=True, slots=True)
class PolicyTaskRow:
    live: LiveAttempt
    name: str
    owner: str
    is_own: bool
    is_over_quota: bool


@dataclass(frozen=True, slots=True)
class PolicyTasks:
    """The largest running tasks of a policy, and how many more there are."""

    rows: tuple[PolicyTaskRow, ...]
    tasks: int
    gpu: int
    more: int
    policy_id: int
    topics: tuple[str, ...]
    announce: str = ""


@card("policy_tasks", Sharing.NOBODY)
def load_policy_tasks(user: User, key: str) -> PolicyTasks | None:
    """Tasks that hold resources of the policy; only tasks in visible queues have a name."""
    visible = policies_visible_to(user)
    policy = visible.filter(pk=key_id(key)).first()
    if policy is None:
        return None
    # Of everything below it, too, as in its figures.
    family = policy_family(policy.pk)
    amounts = amounts_of()
    # The tier is that of the pass: what no reservation covers, its own or its parents'.
    of_tree = live_attempts(Q(policy__in=family_in(policy.pk, amounts)))
    over_quota = over_quota_tasks(of_tree, amounts)
    live = [one for one in of_tree if one.policy_id in family]
    live.sort(key=lambda one: (-one.gpu, one.since, one.task_id))
    seen = set(queues_visible_to(user).filter(policy__in=family).values_list("pk", flat=True))
    shown = [one for one in live if one.queue_id in seen or one.owner_id == user.pk]
    first = shown[:MOST_TASKS]
    names = names_of_tasks([one.task_id for one in first])
    return PolicyTasks(
        rows=tuple(
            PolicyTaskRow(
                live=one,
                name=names[one.task_id][0],
                owner=names[one.task_id][1],
                is_own=one.owner_id == user.pk,
                is_over_quota=one.task_id in over_quota,
            )
            for one in first
        ),
        tasks=len(live),
        gpu=sum(one.gpu for one in live),
        more=len(live) - len(first),
        policy_id=policy.pk,
        topics=(*topics_of("policy", family), *topics_of("queue", seen)),
    )
