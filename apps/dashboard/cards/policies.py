"""Policies as rows of a tree, and one policy with its queues."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Q

from apps.access.selectors import policies_visible_to, queues_visible_to
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.core import clock
from apps.dashboard.cards.bars import UsageBar
from apps.dashboard.cards.words import ordinal
from apps.dashboard.live import Sharing, card, key_id, topics_of
from apps.dashboard.selectors.current_tasks import CurrentTasks, current_tasks_of
from apps.dashboard.selectors.people import people_in
from apps.dashboard.selectors.pools import simulated_pools
from apps.policies.budgets import Budget, budgets_at
from apps.policies.models import Policy, Profile, Queue
from apps.policies.selectors import policy_family
from apps.usage.selectors.current_usage import (
    GPU,
    Amounts,
    Usage,
    amounts_of,
    attempts_by_policy,
    live_attempts,
    over_quota_tasks,
    reservations_of,
    usage_by,
    usage_of,
)
from apps.usage.selectors.waiting_tasks import (
    NO_WAITING_TASKS,
    WaitingTasks,
    own_waiting_by_queue,
    waiting_by_queue,
    waiting_sum,
)

MOST_BRANCHES = 4


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One line of the list; amounts are thousandths of GPU.

    `parent` is the name of the row above it in the tree, empty at the top.
    """

    policy: Policy
    depth: int
    parent: str
    teams: int
    people: int
    usage: Usage
    reserved: int
    limit: int | None
    waiting: WaitingTasks
    bar: UsageBar

    @property
    def beyond_word(self) -> str:
        """How use beyond the own reservation is called: that of a parent may still cover it."""
        return _beyond_word(self.policy)

    @property
    def free(self) -> int | None:
        return None if self.limit is None else max(self.limit - self.usage.total, 0)


@dataclass(frozen=True, slots=True)
class RoutedPool:
    rank: int
    name: str
    is_simulated: bool


@dataclass(frozen=True, slots=True)
class QueueBranch:
    """A queue on its line from the policy to the profile, with the counts of this queue.

    `own_running` and `own_waiting` are the reader's; `turn` says which of the profile's policies
    is served when, `pools` where its work goes: both empty for those who see no pool links.
    """

    queue: Queue
    profile: Profile
    gpu: str
    running: int
    waiting: WaitingTasks
    own_running: int
    own_waiting: int
    turn: str
    pools: tuple[RoutedPool, ...]
    path: str


@dataclass(frozen=True, slots=True)
class PolicyCard:
    """`teams` are the policies below it that the reader sees."""

    row: PolicyRow
    teams: tuple[PolicyRow, ...]
    branches: tuple[QueueBranch, ...]
    budget: Budget | None
    topics: tuple[str, ...]
    announce: str

    @property
    def is_wide(self) -> bool:
        """More branches than fit in one row: they wrap, without curves."""
        return len(self.branches) > MOST_BRANCHES


def policy_rows(policies: Iterable[Policy], current: CurrentTasks | None = None) -> list[PolicyRow]:
    """The policies as a tree in their order; a policy's figures include those below it.

    Args:
        current: the tasks of at least these policies; None reads just those.
    """
    every = list(policies)
    children = _children_of(every)
    tree = _tree()
    concerned = {pk for policy in every for pk in (policy.pk, *tree.below(policy.pk))}
    queues_of = _queues_of(concerned)
    if current is None:
        queue_ids = [pk for ids in queues_of.values() for pk in ids]
        current = current_tasks_of(policy_ids=concerned, queue_ids=queue_ids)
    waits = current.waiting
    amounts = amounts_of(concerned)
    reservations = reservations_of(amounts)
    attempts = attempts_by_policy(current.attempts)
    people = people_in(every)
    rows: list[PolicyRow] = []

    def walk(parent: Policy | None, depth: int) -> None:
        for policy in children[parent.pk if parent is not None else None]:
            family = [policy.pk, *tree.below(policy.pk)]
            of_family = [one for member in family for one in attempts[member]]
            over_quota = current.over_quota
            if policy.parent_id is not None:
                # Each policy's figures are those of its own reservation, as its bar is.
                over_quota = over_quota_tasks(of_family, {pk: amounts[pk] for pk in family})
            rows.append(
                _row(
                    policy,
                    depth=depth,
                    parent=parent.name if parent is not None else "",
                    teams=len(children[policy.pk]),
                    people=people[policy.pk],
                    usage=usage_of(of_family, over_quota),
                    reserved=reservations[policy.pk].get(GPU, 0),
                    limit=amounts.get(policy.pk, Amounts()).limit.get(GPU),
                    waiting=waiting_sum(
                        waits.get(pk, NO_WAITING_TASKS)
                        for member in family
                        for pk in queues_of[member]
                    ),
                )
            )
            walk(policy, depth + 1)

    walk(None, 0)
    return rows


def _children_of(policies: Sequence[Policy]) -> Mapping[int | None, list[Policy]]:
    """Below each policy those that are shown; below None those without a shown parent."""
    shown = {policy.pk for policy in policies}
    children: dict[int | None, list[Policy]] = defaultdict(list)
    for policy in policies:
        children[policy.parent_id if policy.parent_id in shown else None].append(policy)
    return children


@card("policy_card", Sharing.ADMINS)
def load_policy_card(user: User, key: str) -> PolicyCard | None:
    """One policy, its use, and the queues that the person sees."""
    visible = policies_visible_to(user).select_related("group")
    policy = visible.filter(pk=key_id(key)).first()
    if policy is None:
        return None
    row, *below = policy_rows([policy, *visible.filter(parent=policy)])
    queues = list(
        queues_visible_to(user)
        .filter(policy=policy)
        .select_related("profile")
        .prefetch_related("profile__links__pool")
        .order_by("profile__position", "profile_id")
    )
    counts = _counts(user, queues)
    branches = tuple(
        _branch(queue, at=at, of=len(queues), counts=counts) for at, queue in enumerate(queues)
    )
    return PolicyCard(
        row=row,
        teams=tuple(below),
        branches=branches,
        budget=budgets_at(clock.now(), [policy.pk]).get(policy.pk),
        # Its figures are those of everything below it, too.
        topics=(
            *topics_of("policy", policy_family(policy.pk)),
            *topics_of("queue", [queue.pk for queue in queues]),
        ),
        announce=f"{policy.name}: {row.usage.tasks} running, {row.waiting.count} waiting",
    )


def _row(
    policy: Policy,
    *,
    depth: int,
    parent: str,
    teams: int,
    people: int,
    usage: Usage,
    reserved: int,
    limit: int | None,
    waiting: WaitingTasks,
) -> PolicyRow:
    bar = UsageBar.of(
        used=usage.total,
        reserved=reserved,
        limit=limit,
        over_quota=usage.over_quota,
        beyond_word=_beyond_word(policy),
    )
    return PolicyRow(policy, depth, parent, teams, people, usage, reserved, limit, waiting, bar)


def _beyond_word(policy: Policy) -> str:
    return "over quota" if policy.parent_id is None else "beyond own reservation"


@dataclass(frozen=True, slots=True)
class _Counts:
    """Per queue; `simulated` are the pools to mark, None for those who see no pool links."""

    usages: Mapping[int, Usage]
    waiting: Mapping[int, WaitingTasks]
    own_running: Mapping[int, Usage]
    own_waiting: Mapping[int, int]
    turns: Mapping[int, str]
    simulated: frozenset[int] | None


def _counts(user: User, queues: Iterable[Queue]) -> _Counts:
    every = list(queues)
    ids = [queue.pk for queue in every]
    attempts = live_attempts(Q(queue__in=ids))
    # Administrators share one rendering, so it marks nothing as their own.
    is_shared = is_admin(user)
    own = [] if is_shared else [one for one in attempts if one.owner_id == user.pk]
    return _Counts(
        usages=usage_by(attempts, frozenset(), of="queue_id"),
        waiting=waiting_by_queue(ids),
        own_running=usage_by(own, frozenset(), of="queue_id"),
        own_waiting={} if is_shared else own_waiting_by_queue(user, ids),
        turns=_turns(every) if is_shared else {},
        simulated=simulated_pools() if is_shared else None,
    )


def _turns(queues: Iterable[Queue]) -> dict[int, str]:
    """`2nd of 20` for each queue: when its policy is served among those of the profile."""
    rows = Queue.objects.filter(
        removed_at__isnull=True, profile__in={queue.profile_id for queue in queues}
    ).order_by("queuing_rank", "pk")
    order: dict[int, list[int]] = defaultdict(list)
    for pk, profile in rows.values_list("pk", "profile_id"):
        order[profile].append(pk)
    return {
        pk: f"{ordinal(at)} of {len(path)}"
        for path in order.values()
        for at, pk in enumerate(path, start=1)
    }


def _branch(queue: Queue, *, at: int, of: int, counts: _Counts) -> QueueBranch:
    links = sorted(queue.profile.links.all(), key=lambda link: (link.routing_rank, link.pk))
    pools = [link.pool for link in links if not link.pool.is_removed]
    x = round(900 * (2 * at + 1) / (2 * of))
    simulated = counts.simulated
    return QueueBranch(
        queue=queue,
        profile=queue.profile,
        gpu=queue.profile.request.get(GPU, ""),
        running=counts.usages[queue.pk].tasks,
        waiting=counts.waiting[queue.pk],
        own_running=counts.own_running[queue.pk].tasks,
        own_waiting=counts.own_waiting.get(queue.pk, 0),
        turn=counts.turns.get(queue.pk, ""),
        pools=tuple(
            RoutedPool(rank, pool.name, pool.pk in simulated)
            for rank, pool in enumerate(pools, start=1)
        )
        if simulated is not None
        else (),
        path=f"M450 0C450 30 {x} 16 {x} 56",
    )


@dataclass(frozen=True, slots=True)
class PolicyTree:
    """The tree of all policies that are not removed."""

    children: Mapping[int, list[int]]

    def below(self, policy_id: int) -> list[int]:
        """All policies below this one."""
        found: list[int] = []
        todo = list(self.children.get(policy_id, ()))
        while todo:
            one = todo.pop()
            found.append(one)
            todo.extend(self.children.get(one, ()))
        return found


def _tree() -> PolicyTree:
    children: dict[int, list[int]] = defaultdict(list)
    rows = Policy.objects.filter(removed_at__isnull=True, parent__isnull=False)
    for policy, parent in rows.values_list("pk", "parent_id"):
        children[parent].append(policy)
    return PolicyTree(children)


def _queues_of(policy_ids: Iterable[int]) -> defaultdict[int, list[int]]:
    """Ids of the queues of each policy."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    rows = Queue.objects.filter(removed_at__isnull=True, policy__in=list(policy_ids))
    for queue, policy in rows.values_list("pk", "policy_id"):
        found[policy].append(queue)
    return found
