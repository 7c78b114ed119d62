"""What runs and what waits, read once for all parts of a card."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from django.db.models import Q

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.dashboard.selectors.use import Held, amounts_of, held_now, over_quota_tasks
from apps.dashboard.selectors.waiting import Waiting, waiting_by_queue
from apps.policies.models import Policy, Queue
from apps.policies.selectors import policies_visible_to, queues_visible_to
from apps.policies.tenancy import strange_policies


@dataclass(frozen=True, slots=True)
class Work:
    """`over` are the running tasks that count as over quota; `waiting` is per queue.

    `elsewhere` is what other organisations hold, in thousandths by pool and key: of that there is
    nothing else here.
    """

    held: tuple[Held, ...]
    over: frozenset[UUID]
    waiting: Mapping[int, Waiting]
    elsewhere: Mapping[tuple[int, str], int] = field(default_factory=dict)


def work_of_all() -> Work:
    """Of the whole installation, in four queries."""
    held = held_now()
    return Work(tuple(held), over_quota_tasks(held, amounts_of()), waiting_by_queue())


@dataclass(frozen=True, slots=True)
class RunningByQuota:
    """Ids of running tasks, by how their policies' figures count them."""

    reserved: frozenset[UUID]
    over: frozenset[UUID]


def running_by_quota(user: User, policy: int | None) -> RunningByQuota:
    """As the figures of `policy` count, or those of all policies that the person sees."""
    if policy is None and is_admin(user):
        work = work_of_all()
    else:
        seen = set(policies_visible_to(user).values_list("pk", flat=True))
        if policy is not None:
            seen &= {policy}
        work = work_of(policy_ids=_with_those_below(seen), queue_ids=())
    return RunningByQuota(frozenset(one.task_id for one in work.held) - work.over, work.over)


def _with_those_below(policies: set[int]) -> list[int]:
    parents = dict(Policy.objects.filter(removed_at__isnull=True).values_list("pk", "parent_id"))

    def is_below(policy: int | None) -> bool:
        while policy is not None and policy not in policies:
            policy = parents.get(policy)
        return policy is not None

    return [policy for policy in parents if is_below(policy)]


def work_seen_by(user: User) -> Work:
    """Of the whole installation; of other tenants only how much they hold of each pool."""
    work, strange = work_of_all(), strange_policies(user)
    if not strange:
        return work
    # A rule may let somebody see into a tenant, and then its work is no secret to them.
    seen = policies_visible_to(user).values_list("pk", flat=True)
    strange -= {*seen, *queues_visible_to(user).values_list("policy", flat=True)}
    elsewhere: dict[tuple[int, str], int] = defaultdict(int)
    for one in work.held:
        if one.policy_id in strange:
            for key, amount in one.amounts.items():
                elsewhere[one.pool_id, key] += amount
    queues = set(Queue.objects.filter(policy__in=strange).values_list("pk", flat=True))
    waiting = {pk: found for pk, found in work.waiting.items() if pk not in queues}
    return Work(
        held=tuple(one for one in work.held if one.policy_id not in strange),
        over=work.over,
        waiting=defaultdict(Waiting, waiting),
        elsewhere=elsewhere,
    )


def work_of(*, policy_ids: Iterable[int], queue_ids: Iterable[int]) -> Work:
    """What runs under these policies and waits in these queues, in four queries."""
    policies = list(policy_ids)
    held = held_now(Q(policy__in=policies))
    over = over_quota_tasks(held, amounts_of(policies))
    return Work(tuple(held), over, waiting_by_queue(queue_ids))
