"""What to call pools, policies, queues and tasks for one reader."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from django.db.models import Model, QuerySet

from apps.access.isolation import other_tenants_policy_ids
from apps.access.selectors import policies_visible_to, pools_visible_to, queues_visible_to
from apps.accounts.models import User
from apps.accounts.selectors import is_admin
from apps.allocation.engine.model.reasons import ReasonCode
from apps.core import clock
from apps.nodes.selectors import ClosedNodes, closed_nodes
from apps.policies.budgets import Budget, budgets_at
from apps.policies.models import Policy, Pool, Queue
from apps.tasks.models import Task
from apps.tasks.selectors.visibility import tasks_seen_with_queue

ANOTHER_POOL = "another pool"
ANOTHER_TEAM = "another team"
ANOTHER_QUEUE = "another queue"
EARLIER_TASK = "an earlier task"
OTHER_TENANTS = "another tenant's tasks"
_PLACES = ("first", "second", "third", "fourth", "fifth")
# As many tasks of one reason are called by name.
MOST_TASKS = 50
# As many different reasons of pauses of a pool's nodes are shown.
MOST_PAUSE_REASONS = 3


@dataclass(frozen=True, slots=True)
class ReaderNames:
    """Names as far as the reader may see them; everything else has a word that reveals nothing.

    `routing` is the order of pools of the task's profile, for "your second pool"; `routings` are
    those of the queues that the task was in before. Ids arrive as numbers, or as texts of numbers;
    those of tasks as texts.
    """

    pools: Mapping[int, str]
    policies: Mapping[int, str]
    queues: Mapping[int, str]
    routing: tuple[int, ...] = ()
    routings: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    tasks: Mapping[str, str] = field(default_factory=dict)
    # The reader's own id; None where the reader does not matter.
    reader: int | None = None
    # Policies of other tenants, whose work is not even counted for the reader.
    other_tenants: frozenset[int] = frozenset()
    # Nodes that accept nothing new, per pool; looked up for reasons of capacity.
    closed: Mapping[int, ClosedNodes] = field(default_factory=dict)
    # Of the policies that have a name; looked up for reasons of budgets.
    budgets: Mapping[int, Budget] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        user: User,
        task: Task | None = None,
        reasons: Iterable[Mapping[str, Any]] = (),
        *,
        queues: Iterable[int | None] = (),
    ) -> "ReaderNames":
        """What `user` may read about `task`; tasks are looked up where `reasons` names them.

        Args:
            queues: ids of those that the task was in before; see `in_queue`.
        """
        policies = _names(policies_visible_to(user), Policy.objects.all(), user)
        reasons = list(reasons)
        queue = (task.queue_id if task is not None else None) or 0
        routings = _routings({one for one in (queue, *queues) if one})
        codes = {reason.get("code") for reason in reasons}
        return cls(
            pools=_names(pools_visible_to(user), Pool.objects.all(), user),
            policies=policies,
            queues=_names(queues_visible_to(user), Queue.objects.all(), user),
            routing=routings.get(queue, ()),
            routings=routings,
            tasks=_task_names(user, reasons),
            reader=user.pk,
            other_tenants=other_tenants_policy_ids(user) - policies.keys(),
            closed=closed_nodes() if ReasonCode.CAPACITY in codes else {},
            budgets=budgets_at(clock.now(), policies) if ReasonCode.BUDGET in codes else {},
        )

    def in_queue(self, queue: int | None) -> "ReaderNames":
        """The names for what happened while the task was in this queue, not in its present one."""
        return replace(self, routing=self.routings.get(queue or 0, self.routing))

    def pool(self, id_: object) -> str:
        known = self.pools.get(number_of(id_))
        if known:
            return known
        if number_of(id_) not in self.routing:
            return ANOTHER_POOL
        place = self.routing.index(number_of(id_))
        return f"your {_PLACES[place] if place < len(_PLACES) else f'{place + 1}th'} pool"

    def help_with_closed(self, details: Iterable[Mapping[str, Any]]) -> str:
        """What helps where nodes of these pools accept nothing new; empty where all accept it."""
        pools = dict.fromkeys(number_of(one.get("pool")) for one in details)
        closed = {pool: self.closed[pool] for pool in pools if pool in self.closed}
        if not closed:
            return ""
        is_nothing_open = len(closed) == len(pools) and all(
            one.is_whole_pool for one in closed.values()
        )
        words = "" if is_nothing_open else "enough work has ended, or "
        parts = ". ".join(self._closed(pool, nodes) for pool, nodes in closed.items())
        return f"It starts once {words}nodes there take tasks again. {parts}."

    def _closed(self, pool: int, nodes: ClosedNodes) -> str:
        """With the reasons of the pauses, for a reader who sees the pool and so its pause."""
        shown = nodes.reasons[:MOST_PAUSE_REASONS] if pool in self.pools else ()
        reasons = f" ({'; '.join(one.rstrip('.') for one in shown)})" if shown else ""
        name = self.pool(pool)
        # A name that its users chose keeps its case.
        name = name if pool in self.pools else name[0].upper() + name[1:]
        return f"{name}: {nodes.text}{reasons}"

    def policy(self, id_: object) -> str:
        return self.policies.get(
            number_of(id_), OTHER_TENANTS if self.is_other_tenants(id_) else ANOTHER_TEAM
        )

    def budget(self, id_: object, month: date) -> str:
        """`812.30 of 1,000.00 EUR` in the present month, for those who see the policy's costs."""
        known = self.budgets.get(number_of(id_))
        return known.words if known is not None and known.month == month else ""

    def queue(self, id_: object) -> str:
        return self.queues.get(number_of(id_), ANOTHER_QUEUE)

    def task(self, id_: object) -> str:
        return self.tasks.get(str(id_), EARLIER_TASK)

    def is_other_tenants(self, id_: object) -> bool:
        """Whether the policy is that of another tenant."""
        return number_of(id_) in self.other_tenants

    def is_other_tenants_task(self, id_: object) -> bool:
        """Whether the task may be that of another tenant: where there is one, any unseen."""
        return bool(self.other_tenants) and str(id_) not in self.tasks

    def is_reader(self, id_: object) -> bool:
        return self.reader is not None and number_of(id_) == self.reader

    def rank(self, id_: object) -> int:
        """Place in the routing order, from 1."""
        return self.routing.index(number_of(id_)) + 1 if number_of(id_) in self.routing else 1


def number_of(id_: object) -> int:
    """The id as a number; 0, which no row has, for what is none."""
    return int(str(id_)) if str(id_).isdecimal() else 0


def _names(visible: QuerySet[Any], every: QuerySet[Any], user: User) -> dict[int, str]:
    # What was removed still has running work, and administrators see that.
    rows: QuerySet[Model] = every if is_admin(user) else visible
    return dict(rows.values_list("pk", "name"))


def _routings(queues: Collection[int]) -> dict[int, tuple[int, ...]]:
    """The pools of each queue's profile, in routing order."""
    if not queues:
        return {}
    rows = Queue.objects.filter(pk__in=queues, profile__links__isnull=False)
    rows = rows.order_by("profile__links__routing_rank", "profile__links__pk")
    found: dict[int, tuple[int, ...]] = {}
    for queue, pool in rows.values_list("pk", "profile__links__pool"):
        found[queue] = (*found.get(queue, ()), pool)
    return found


def _task_names(user: User, reasons: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    named: dict[str, None] = {}
    for reason in reasons:
        for detail in reason.get("details", ()):
            named.update(dict.fromkeys(map(str, detail.get("tasks", ())[:MOST_TASKS])))
    if not named:
        return {}
    rows = tasks_seen_with_queue(user).filter(pk__in=list(named))
    return {str(pk): name for pk, name in rows.values_list("pk", "name")}
