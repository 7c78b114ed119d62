"""Who holds what of a policy now."""

from dataclasses import dataclass

from django.db.models import Q

from apps.accounts.models import User
from apps.dashboard.live import Sharing, card, key_id, topics_of
from apps.dashboard.selectors.use import Held, amounts_of, held_now, over_quota_tasks
from apps.dashboard.selectors.waiting import names_of_tasks
from apps.policies.selectors import policies_visible_to, policy_family, queues_visible_to

MOST_HOLDING = 12


@dataclass(frozen=True, slots=True)
class HoldingRow:
    held: Held
    name: str
    owner: str
    is_own: bool
    is_over: bool


@dataclass(frozen=True, slots=True)
class PolicyHolding:
    """The largest running tasks of a policy, and how many more there are."""

    rows: tuple[HoldingRow, ...]
    tasks: int
    gpu: int
    more: int
    policy_id: int
    topics: tuple[str, ...]
    announce: str = ""


@card("policy_holding", Sharing.NOBODY)
def load_policy_holding(user: User, key: str) -> PolicyHolding | None:
    """Who holds what of the policy; only tasks in queues that the person sees are named."""
    visible = policies_visible_to(user)
    policy = visible.filter(pk=key_id(key)).first()
    if policy is None:
        return None
    # Of everything below it, too, as in its figures.
    family = policy_family(policy.pk)
    held = held_now(Q(policy__in=family))
    held.sort(key=lambda one: (-one.gpu, one.since, one.task_id))
    over = over_quota_tasks(held, amounts_of(family))
    seen = set(queues_visible_to(user).filter(policy__in=family).values_list("pk", flat=True))
    shown = [one for one in held if one.queue_id in seen or one.owner_id == user.pk]
    first = shown[:MOST_HOLDING]
    names = names_of_tasks([one.task_id for one in first])
    return PolicyHolding(
        rows=tuple(
            HoldingRow(
                held=one,
                name=names[one.task_id][0],
                owner=names[one.task_id][1],
                is_own=one.owner_id == user.pk,
                is_over=one.task_id in over,
            )
            for one in first
        ),
        tasks=len(held),
        gpu=sum(one.gpu for one in held),
        more=len(held) - len(first),
        policy_id=policy.pk,
        topics=(*topics_of("policy", family), *topics_of("queue", seen)),
    )
