"""Policies: the list as a tree, one policy with its queues, and who holds what of it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db.models import Q

from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.dashboard.cards.bars import UseBar
from apps.dashboard.live import Sharing, card, key_id, topics_of
from apps.dashboard.selectors.people import people_in
from apps.dashboard.selectors.pools import simulated_pools
from apps.dashboard.selectors.use import (
    GPU,
    Amounts,
    Held,
    Use,
    amounts_of,
    held_now,
    over_quota_tasks,
    use_by,
)
from apps.dashboard.selectors.waiting import (
    NOBODY,
    Waiting,
    names_of_tasks,
    summed,
    waiting_by_queue,
)
from apps.dashboard.selectors.work import Work, work_of
from apps.policies.models import Policy, Profile, Queue
from apps.policies.selectors import policies_visible_to, queues_visible_to

MOST_HOLDING = 12
MOST_BESIDE = 4


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One line of the list; amounts are thousandths of GPU."""

    policy: Policy
    depth: int
    teams: int
    people: int
    use: Use
    reserved: int
    limit: int | None
    waiting: Waiting
    bar: UseBar

    @property
    def free(self) -> int | None:
        return None if self.limit is None else max(self.limit - self.use.total, 0)


@dataclass(frozen=True, slots=True)
class PolicyList:
    rows: tuple[PolicyRow, ...]
    use: Use
    reserved: int
    unused: int
    waiting: Waiting
    topics: tuple[str, ...]
    announce: str = ""


@dataclass(frozen=True, slots=True)
class RoutedPool:
    rank: int
    name: str
    is_simulated: bool


@dataclass(frozen=True, slots=True)
class QueueBranch:
    """A queue on its line from the policy to the profile, with the counts of this queue."""

    queue: Queue
    profile: Profile
    gpu: str
    running: int
    waiting: Waiting
    pools: tuple[RoutedPool, ...]
    line: str


@dataclass(frozen=True, slots=True)
class PolicyCard:
    row: PolicyRow
    branches: tuple[QueueBranch, ...]
    topics: tuple[str, ...]
    announce: str

    @property
    def is_wide(self) -> bool:
        """More branches than stand side by side: they wrap, without curves."""
        return len(self.branches) > MOST_BESIDE


def policy_rows(policies: Iterable[Policy], work: Work | None = None) -> list[PolicyRow]:
    """The policies as a tree in their order; a policy's figures include those below it.

    Args:
        work: what runs and waits at least under these policies; None reads just that.
    """
    every = list(policies)
    shown = {policy.pk for policy in every}
    children: dict[int | None, list[Policy]] = defaultdict(list)
    for policy in every:
        children[policy.parent_id if policy.parent_id in shown else None].append(policy)
    tree = _tree()
    concerned = {pk for policy in every for pk in (policy.pk, *tree.below(policy.pk))}
    queues_of = _queues_of(concerned)
    if work is None:
        queue_ids = [pk for ids in queues_of.values() for pk in ids]
        work = work_of(policy_ids=concerned, queue_ids=queue_ids)
    waits = work.waiting
    amounts = amounts_of(concerned)
    uses = use_by(work.held, work.over, of="policy_id")
    people = people_in({policy.group_id for policy in every})
    rows: list[PolicyRow] = []

    def walk(parent: int | None, depth: int) -> None:
        for policy in children[parent]:
            family = [policy.pk, *tree.below(policy.pk)]
            use = Use()
            for member in family:
                use = use.plus(uses[member])
            rows.append(
                _row(
                    policy,
                    depth=depth,
                    teams=len(children[policy.pk]),
                    people=people.get(policy.group_id, 0),
                    use=use,
                    reserved=tree.reserved(policy.pk, amounts),
                    limit=amounts.get(policy.pk, Amounts()).limit.get(GPU),
                    waiting=summed(
                        waits.get(pk, NOBODY) for member in family for pk in queues_of[member]
                    ),
                )
            )
            walk(policy.pk, depth + 1)

    walk(None, 0)
    return rows


@card("policy_rows", Sharing.ADMINS)
def load_policy_list(user: User, _key: str) -> PolicyList:
    """Every policy that the person sees."""
    rows = policy_rows(policies_visible_to(user).select_related("group"))
    top = [row for row in rows if row.depth == 0]
    use = Use()
    for row in top:
        use = use.plus(row.use)
    return PolicyList(
        rows=tuple(rows),
        use=use,
        reserved=sum(row.reserved for row in top),
        unused=sum(max(row.reserved - row.use.total, 0) for row in top),
        waiting=summed(row.waiting for row in top),
        topics=("overview", *topics_of("policy", [row.policy.pk for row in rows])),
    )


@card("policy_card", Sharing.ADMINS)
def load_policy_card(user: User, key: str) -> PolicyCard | None:
    """One policy, its use, and the queues that the person sees."""
    visible = policies_visible_to(user).select_related("group")
    policy = visible.filter(pk=key_id(key)).first()
    if policy is None:
        return None
    row = next(one for one in policy_rows([policy]))
    queues = list(
        queues_visible_to(user)
        .filter(policy=policy)
        .select_related("profile")
        .prefetch_related("profile__links__pool")
        .order_by("profile__position", "profile_id")
    )
    waiting = waiting_by_queue([queue.pk for queue in queues])
    held = held_now(Q(queue__in=[queue.pk for queue in queues]))
    running = use_by(held, frozenset(), of="queue_id")
    simulated = simulated_pools() if is_admin(user) else None
    branches = tuple(
        _branch(
            queue,
            at=at,
            of=len(queues),
            running=running[queue.pk].tasks,
            waiting=waiting[queue.pk],
            simulated=simulated,
        )
        for at, queue in enumerate(queues)
    )
    return PolicyCard(
        row=row,
        branches=branches,
        topics=(f"policy.{policy.pk}", *topics_of("queue", [queue.pk for queue in queues])),
        announce=f"{policy.name}: {row.use.tasks} running, {row.waiting.count} waiting",
    )


@dataclass(frozen=True, slots=True)
class HoldingRow:
    held: Held
    name: str
    owner: str
    is_own: bool
    is_over: bool


@dataclass(frozen=True, slots=True)
class PolicyHolding:
    """The longest running tasks of a policy, and how many more there are."""

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
    held = sorted(held_now(Q(policy=policy)), key=lambda one: one.since)
    over = over_quota_tasks(held, amounts_of([policy.pk]))
    seen = set(queues_visible_to(user).filter(policy=policy).values_list("pk", flat=True))
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
        topics=(f"policy.{policy.pk}", *topics_of("queue", seen)),
    )


def _row(
    policy: Policy,
    *,
    depth: int,
    teams: int,
    people: int,
    use: Use,
    reserved: int,
    limit: int | None,
    waiting: Waiting,
) -> PolicyRow:
    bar = UseBar.of(used=use.total, reserved=reserved, limit=limit, over=use.over)
    return PolicyRow(policy, depth, teams, people, use, reserved, limit, waiting, bar)


def _branch(
    queue: Queue,
    *,
    at: int,
    of: int,
    running: int,
    waiting: Waiting,
    simulated: frozenset[int] | None,
) -> QueueBranch:
    """`simulated` are the pools to mark; None for those who see no pool links."""
    links = sorted(queue.profile.links.all(), key=lambda link: (link.routing_rank, link.pk))
    pools = [link.pool for link in links if not link.pool.is_removed]
    x = round(900 * (2 * at + 1) / (2 * of))
    return QueueBranch(
        queue=queue,
        profile=queue.profile,
        gpu=queue.profile.request.get(GPU, ""),
        running=running,
        waiting=waiting,
        pools=tuple(
            RoutedPool(rank, pool.name, pool.pk in (simulated or ()))
            for rank, pool in enumerate(pools, start=1)
        )
        if simulated is not None
        else (),
        line=f"M450 0C450 30 {x} 16 {x} 56",
    )


@dataclass(frozen=True, slots=True)
class Tree:
    """Who is below whom, of all policies that are not removed."""

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

    def reserved(self, policy_id: int, amounts: Mapping[int, Amounts]) -> int:
        """Thousandths of GPU; where a parent sets none, it is the sum of its children's."""
        own = amounts.get(policy_id, Amounts()).reserved
        if GPU in own:
            return own[GPU]
        return sum(self.reserved(child, amounts) for child in self.children.get(policy_id, ()))


def _tree() -> Tree:
    children: dict[int, list[int]] = defaultdict(list)
    rows = Policy.objects.filter(removed_at__isnull=True, parent__isnull=False)
    for policy, parent in rows.values_list("pk", "parent_id"):
        children[parent].append(policy)
    return Tree(children)


def _queues_of(policy_ids: Iterable[int]) -> defaultdict[int, list[int]]:
    """Ids of the queues of each policy."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    rows = Queue.objects.filter(removed_at__isnull=True, policy__in=list(policy_ids))
    for queue, policy in rows.values_list("pk", "policy_id"):
        found[policy].append(queue)
    return found
