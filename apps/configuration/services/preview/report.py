"""A preview in words and numbers: counts of everything, the first of every list."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.engine.model.reasons import to_data
from apps.allocation.engine.model.snapshot import Id, QueuedGroup, RunningGroup, Snapshot
from apps.allocation.explanation import ReaderNames, reason_payload
from apps.allocation.whatif.comparison import PlanDifference, compare
from apps.allocation.whatif.steady_state import SteadyState
from apps.allocation.whatif.usage_counts import PolicyUse, PoolUse, policy_uses, pool_uses
from apps.configuration.services.preview.state import PreviewState
from apps.configuration.services.preview.visibility import Visibility
from apps.core.units import milli_text
from apps.tasks.models import Task

# The most rows of a list; its count is of all.
MOST_ROWS = 100
# The most tasks that are named of a queued group.
MOST_EQUAL = 3

Row = dict[str, Any]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class PreviewList:
    """The first rows of a list; `count` are the tasks of all, `more` the rows left out."""

    count: int
    rows: tuple[Row, ...]
    more: int


@dataclass(frozen=True, slots=True)
class Preview:
    """The state once passes find nothing more to do, without and with the change.

    `passes` counts those with the change; `is_at_rest` False: further ones would change more.
    """

    passes: int
    is_at_rest: bool
    starts: PreviewList
    preempted: PreviewList
    moved: PreviewList
    delayed: PreviewList
    no_longer_preempted: PreviewList
    rejected: PreviewList
    closed: PreviewList
    waiting: PreviewList
    policies: tuple[Row, ...]
    pools: tuple[Row, ...]
    # What the change brings about, for administrators of the installation.
    warnings: tuple[str, ...] = ()


def preview_report(
    before: PreviewState,
    after: PreviewState,
    without: SteadyState,
    with_change: SteadyState,
    *,
    reader: User | None = None,
) -> Preview:
    """The preview of a change.

    Args:
        before, after: the state of now, without and with the change.
        without, with_change: the same at rest.
        reader: an administrator of a tenant sees its tree, as if there were nothing else.
    """
    visibility = Visibility.of(reader, before.snapshot, after.snapshot)
    builder = _ReportBuilder(before, after, without, with_change, visibility)
    difference = builder.difference
    return Preview(
        passes=with_change.passes,
        is_at_rest=with_change.is_at_rest,
        starts=_preview_list(difference.starts, builder.start),
        preempted=_preview_list(difference.preempted, builder.preempted),
        moved=_preview_list(difference.moved, builder.task),
        delayed=_preview_list(difference.delayed, builder.task),
        no_longer_preempted=_preview_list(difference.no_longer_preempted, builder.task),
        rejected=_preview_list(
            difference.rejected, builder.rejected, size=lambda one: one.queued.count
        ),
        closed=_preview_list(*builder.closed(), size=lambda pair: pair[1]),
        waiting=_preview_list(
            sorted(difference.waiting, key=lambda pair: -pair[1].count),
            builder.waiting,
            size=lambda pair: pair[1].count,
        ),
        policies=tuple(builder.policies()),
        pools=tuple(builder.pools()),
    )


def _preview_list(
    items: Sequence[Item], row: Callable[[Item], Row], size: Callable[[Item], int] | None = None
) -> PreviewList:
    shown = tuple(row(one) for one in items[:MOST_ROWS])
    count = sum(map(size, items)) if size else len(items)
    return PreviewList(count, shown, len(items) - len(shown))


class _ReportBuilder:
    """Looks names up once for all rows."""

    def __init__(
        self,
        before: PreviewState,
        after: PreviewState,
        without: SteadyState,
        with_change: SteadyState,
        visibility: Visibility,
    ) -> None:
        self.before, self.after = before, after
        self.without, self.with_change = without, with_change
        self.visibility = visibility
        self.now = timezone.now()
        self.queue_policies = {
            queue.id: queue.policy
            for snapshot in (before.snapshot, after.snapshot)
            for queue in snapshot.queues
        }
        self.groups = _groups(without.snapshot, before.snapshot, with_change.snapshot)
        self.queued_groups = _waiting_queues(before.snapshot, after.snapshot)
        difference = compare(before.snapshot, without, with_change)
        self.difference = visibility.of_tasks(difference, self._policy_of)
        self.names = visibility.of_names(
            ReaderNames(
                pools=_by_id(before.snapshot.pools, after.snapshot.pools),
                policies=_by_id(before.snapshot.policies, after.snapshot.policies),
                queues={**before.queues, **after.queues},
                tasks=_names_of_tasks(_named_tasks(self.difference)),
            )
        )

    def task(self, task: Id) -> Row:
        """A task by name, with its queue and policy, and where it runs with the change."""
        group = self.groups.get(task)
        queue = group.queue if group is not None else self.queued_groups.get(task)
        return {
            "task": task,
            "name": self.names.tasks.get(str(task), ""),
            "queue": self.names.queue(queue) if queue is not None else "",
            "policy": self.names.policy(self._policy_of(task)),
            "pool": self.names.pool(group.pool) if group is not None else "",
        }

    def _policy_of(self, task: Id) -> Id | None:
        group = self.groups.get(task)
        return (
            group.policy
            if group is not None
            else self.queue_policies.get(self.queued_groups.get(task, 0))
        )

    def start(self, placement: Any) -> Row:
        return {
            **self.task(placement.task),
            "pool": self.names.pool(placement.pool),
            "tier": placement.tier.value,
            "preempts": sum(
                self.visibility.sees(self._policy_of(one)) for one in placement.waits_for
            ),
        }

    def preempted(self, one: Any) -> Row:
        taker = self.task(one.beneficiary)
        if not self.visibility.sees(self._policy_of(one.beneficiary)):
            taker = {**taker, "task": "", "queue": ""}
        row = self.task(one.task)
        group = self.groups.get(one.task)
        returns = group is not None and group.queue in self.after.returning
        return {
            **row,
            "pool": self.names.pool(one.pool),
            "is_requeued": returns,
            "beneficiary": {key: taker[key] for key in ("task", "name", "queue", "policy")},
        }

    def rejected(self, one: Any) -> Row:
        return {
            **self._group_row(
                one.queued, [head.task for head in one.queued.heads], one.queued.count
            ),
            "code": "never_fits",
            "sentence": " ".join(f"{k} {v}." for k, v in one.problems.items()),
        }

    def waiting(self, pair: Any) -> Row:
        queued, wait = pair
        reason = reason_payload(to_data(wait.reasons[0]), self.names, now=self.now)
        return {
            **self._group_row(queued, wait.tasks, wait.count),
            "code": reason.code,
            "sentence": reason.sentence,
            "help": reason.help,
        }

    def closed(self) -> tuple[list[tuple[Id, int]], Callable[[tuple[Id, int]], Row]]:
        """Queues whose tasks become drafts: of a closed one, or of people losing permissions."""
        live = {queue.id for queue in self.after.snapshot.queues}
        left = [
            (queue.id, max(self.before.waiting[queue.id] - self.after.waiting[queue.id], 0))
            for queue in self.before.snapshot.queues
            if self.visibility.sees(queue.policy)
        ]
        return [(pk, count) for pk, count in left if count or pk not in live], self._closed

    def _closed(self, one: tuple[Id, int]) -> Row:
        queue, count = one
        return {
            "queue": self.names.queue(queue),
            "policy": self.names.policy(self.queue_policies[queue]),
            "closes": all(live.id != queue for live in self.after.snapshot.queues),
            "tasks_returned": count,
        }

    def policies(self) -> Iterable[Row]:
        before, after = policy_uses(self.without.snapshot), policy_uses(self.with_change.snapshot)
        parents = {policy.id: policy.parent for policy in self.after.snapshot.policies}
        starts = Counter(self._policy_of(one.task) for one in self.difference.starts)
        preempted = Counter(self._policy_of(one.task) for one in self.difference.preempted)
        for policy in filter(self.visibility.sees, _in_order(before, after)):
            parent = parents.get(policy)
            yield {
                "policy": self.names.policy(policy),
                "parent": self.names.policy(parent) if parent is not None else None,
                "before": _policy_row(before.get(policy)),
                "after": _policy_row(after.get(policy)),
                "starts": starts[policy],
                "preempted": preempted[policy],
            }

    def pools(self) -> Iterable[Row]:
        if not self.visibility.sees_all:
            # The use of a pool reveals others' work.
            return
        before, after = pool_uses(self.without.snapshot), pool_uses(self.with_change.snapshot)
        for pool in _in_order(before, after):
            yield {
                "pool": self.names.pool(pool),
                "before": _pool_row(before.get(pool)),
                "after": _pool_row(after.get(pool)),
            }

    def _group_row(self, queued: QueuedGroup, tasks: Sequence[Id], count: int) -> Row:
        return {
            "queue": self.names.queue(queued.queue),
            "policy": self.names.policy(self.queue_policies[queued.queue]),
            "count": count,
            "tasks": [
                {"task": task, "name": self.names.tasks.get(str(task), "")}
                for task in tasks[:MOST_EQUAL]
            ],
        }


def _named_tasks(difference: PlanDifference) -> Iterable[Id]:
    """The tasks that bounded rows may name."""
    for placement in difference.starts[:MOST_ROWS]:
        yield placement.task
    for victim in difference.preempted[:MOST_ROWS]:
        yield from (victim.task, victim.beneficiary)
    for tasks in (difference.moved, difference.delayed, difference.no_longer_preempted):
        yield from tasks[:MOST_ROWS]
    for never in difference.rejected[:MOST_ROWS]:
        yield from (head.task for head in never.queued.heads[:MOST_EQUAL])
    for _, wait in sorted(difference.waiting, key=lambda pair: -pair[1].count)[:MOST_ROWS]:
        yield from wait.tasks[:MOST_EQUAL]
        yield from (task for one in wait.reasons[0].details for task in one.tasks[:MOST_EQUAL])


def _names_of_tasks(ids: Iterable[Id]) -> dict[str, str]:
    rows = Task.objects.filter(pk__in=[str(one) for one in dict.fromkeys(ids)])
    return {str(pk): name for pk, name in rows.values_list("pk", "name")}


def _groups(*snapshots: Snapshot) -> dict[Id, RunningGroup]:
    return {
        running_task.task: group
        for snapshot in snapshots
        for group in snapshot.running
        for running_task in group.tasks
    }


def _waiting_queues(*snapshots: Snapshot) -> dict[Id, Id]:
    """The queue of every task that waits now."""
    return {
        head.task: queued.queue
        for snapshot in snapshots
        for queued in snapshot.queued_groups
        for head in queued.heads
    }


def _by_id(*rows: Iterable[Any]) -> dict[int, str]:
    return {int(row.id): row.name for side in rows for row in side}


def _in_order(*sides: Mapping[Id, object]) -> list[Id]:
    return list(dict.fromkeys(key for side in sides for key in side))


def _policy_row(use: PolicyUse | None) -> Row | None:
    if use is None:
        return None
    return {
        "reservation": _texts(use.reservation),
        "limit": _texts(use.limit),
        "reserved": _texts(use.reserved),
        "over_quota": _texts(use.over_quota),
        "running": use.running,
        "waiting": use.waiting,
    }


def _pool_row(use: PoolUse | None) -> Row | None:
    if use is None:
        return None
    return {
        "capacity": _texts(use.capacity),
        "use": _texts(use.use),
        "running": use.running,
    }


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {key: milli_text(amount) for key, amount in sorted(amounts.items())}
