"""What runs and what waits, read once for all parts of a card."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import Q

from apps.access.isolation import other_tenants_policy_ids
from apps.access.selectors import policies_visible_to, queues_visible_to
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.policies.models import Policy, Queue
from apps.usage.selectors.current_usage import (
    LiveAttempt,
    amounts_of,
    live_attempts,
    over_quota_tasks,
)
from apps.usage.selectors.waiting_tasks import WaitingTasks, waiting_by_queue


@dataclass(frozen=True, slots=True)
class CurrentTasks:
    """`over_quota` are the running tasks that count as over quota; `waiting` is per queue.

    `elsewhere` is what other tenants hold, in thousandths by pool and key: of that there is
    nothing else here.
    """

    attempts: tuple[LiveAttempt, ...]
    over_quota: frozenset[UUID]
    waiting: Mapping[int, WaitingTasks]
    elsewhere: Mapping[tuple[int, str], int] = field(default_factory=dict)


def current_tasks() -> CurrentTasks:
    """Of the whole installation, in four queries."""
    attempts = live_attempts()
    return CurrentTasks(
        tuple(attempts), over_quota_tasks(attempts, amounts_of()), waiting_by_queue()
    )


@dataclass(frozen=True, slots=True)
class RunningByQuota:
    """Ids of running tasks, by how their policies' figures count them."""

    reserved: frozenset[UUID]
    over_quota: frozenset[UUID]


def running_by_quota(user: User, policy: int | None) -> RunningByQuota:
    """As the figures of `policy` count, or those of all policies that the person sees."""
    if policy is None and is_admin(user):
        current = current_tasks()
    else:
        seen = set(policies_visible_to(user).values_list("pk", flat=True))
        if policy is not None:
            seen &= {policy}
        current = current_tasks_of(policy_ids=_with_those_below(seen), queue_ids=())
    return RunningByQuota(
        frozenset(one.task_id for one in current.attempts) - current.over_quota, current.over_quota
    )


def _with_those_below(policies: set[int]) -> list[int]:
    parents = dict(Policy.objects.filter(removed_at__isnull=True).values_list("pk", "parent_id"))

    def is_below(policy: int | None) -> bool:
        while policy is not None and policy not in policies:
            policy = parents.get(policy)
        return policy is not None

    return [policy for policy in parents if is_below(policy)]


def current_tasks_visible_to(user: User) -> CurrentTasks:
    """Of the whole installation; of other tenants only how much they hold of each pool."""
    current, other_tenants = current_tasks(), other_tenants_policy_ids(user)
    if not other_tenants:
        return current
    # A rule may let a user see into a tenant, and then they see its tasks.
    seen = policies_visible_to(user).values_list("pk", flat=True)
    other_tenants -= {*seen, *queues_visible_to(user).values_list("policy", flat=True)}
    elsewhere: dict[tuple[int, str], int] = defaultdict(int)
    for one in current.attempts:
        if one.policy_id in other_tenants:
            for key, amount in one.amounts.items():
                elsewhere[one.pool_id, key] += amount
    queues = set(Queue.objects.filter(policy__in=other_tenants).values_list("pk", flat=True))
    waiting = {pk: found for pk, found in current.waiting.items() if pk not in queues}
    return CurrentTasks(
        attempts=tuple(one for one in current.attempts if one.policy_id not in other_tenants),
        over_quota=current.over_quota,
        waiting=defaultdict(WaitingTasks, waiting),
        elsewhere=elsewhere,
    )


def current_tasks_of(*, policy_ids: Iterable[int], queue_ids: Iterable[int]) -> CurrentTasks:
    """What runs under these policies and waits in these queues, in four queries."""
    policies = list(policy_ids)
    attempts = live_attempts(Q(policy__in=policies))
    over_quota = over_quota_tasks(attempts, amounts_of(policies))
    return CurrentTasks(tuple(attempts), over_quota, waiting_by_queue(queue_ids))
