"""A preview in words and numbers: counts of everything, the first of every list."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.engine.reasons import to_data
from apps.allocation.engine.snapshot import Id, Run, Running, Snapshot
from apps.allocation.explaining import Names, tell
from apps.allocation.whatif.comparing import Difference, compare
from apps.allocation.whatif.counting import PolicyUse, PoolUse, policy_uses, pool_uses
from apps.allocation.whatif.settling import Settled
from apps.configuration.services.preview.sight import Sight
from apps.configuration.services.preview.state import State
from apps.core.units import milli_text
from apps.tasks.models import Task

# As many rows as a list shows; its count is of all.
MOST_ROWS = 100
# As many of equal waiting tasks as are named.
MOST_EQUAL = 3

Row = dict[str, Any]
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Listed:
    """The first rows of a list; `count` are the tasks of all, `more` the rows left out."""

    count: int
    rows: tuple[Row, ...]
    more: int


@dataclass(frozen=True, slots=True)
class Preview:
    """Everything as it is when passes have come to rest, without and with the change.

    `passes` is how many that took with the change; `is_at_rest` False: they were still busy then.
    """

    passes: int
    is_at_rest: bool
    starts: Listed
    preempted: Listed
    moved: Listed
    delayed: Listed
    spared: Listed
    rejected: Listed
    closed: Listed
    waiting: Listed
    policies: tuple[Row, ...]
    pools: tuple[Row, ...]


def told(
    before: State,
    after: State,
    without: Settled,
    with_it: Settled,
    *,
    reader: User | None = None,
) -> Preview:
    """The preview of a change.

    Args:
        before, after: the state of now, without and with the change.
        without, with_it: the same at rest.
        reader: an administrator of a tenant is told of its tree, as if there were nothing else.
    """
    sight = Sight.of(reader, before.snapshot, after.snapshot)
    telling = _Telling(before, after, without, with_it, sight)
    difference = telling.difference
    return Preview(
        passes=with_it.passes,
        is_at_rest=with_it.is_at_rest,
        starts=_listed(difference.starts, telling.start),
        preempted=_listed(difference.preempted, telling.preempted),
        moved=_listed(difference.moved, telling.task),
        delayed=_listed(difference.delayed, telling.task),
        spared=_listed(difference.spared, telling.task),
        rejected=_listed(difference.rejected, telling.rejected, size=lambda one: one.run.count),
        closed=_listed(*telling.closed(), size=lambda pair: pair[1]),
        waiting=_listed(
            sorted(difference.waiting, key=lambda pair: -pair[1].count),
            telling.waiting,
            size=lambda pair: pair[1].count,
        ),
        policies=tuple(telling.policies()),
        pools=tuple(telling.pools()),
    )


def _listed(
    items: Sequence[Item], row: Callable[[Item], Row], size: Callable[[Item], int] | None = None
) -> Listed:
    shown = tuple(row(one) for one in items[:MOST_ROWS])
    count = sum(map(size, items)) if size else len(items)
    return Listed(count, shown, len(items) - len(shown))


class _Telling:
    """Looks names up once for all rows."""

    def __init__(
        self,
        before: State,
        after: State,
        without: Settled,
        with_it: Settled,
        sight: Sight,
    ) -> None:
        self.before, self.after = before, after
        self.without, self.with_it = without, with_it
        self.sight = sight
        self.now = timezone.now()
        self.queue_policies = {
            queue.id: queue.policy
            for snapshot in (before.snapshot, after.snapshot)
            for queue in snapshot.queues
        }
        self.groups = _groups(without.snapshot, before.snapshot, with_it.snapshot)
        self.runs = _runs(before.snapshot, after.snapshot)
        difference = compare(before.snapshot, without, with_it)
        self.difference = sight.of_tasks(difference, self._policy_of)
        self.names = sight.of_names(
            Names(
                pools=_by_id(before.snapshot.pools, after.snapshot.pools),
                policies=_by_id(before.snapshot.policies, after.snapshot.policies),
                queues={**before.queues, **after.queues},
                tasks=_names_of_tasks(_named_tasks(self.difference)),
            )
        )

    def task(self, task: Id) -> Row:
        """A task by name, with its queue and policy, and where it runs with the change."""
        group = self.groups.get(task)
        queue = group.queue if group is not None else self.runs.get(task)
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
            group.policy if group is not None else self.queue_policies.get(self.runs.get(task, 0))
        )

    def start(self, place: Any) -> Row:
        return {
            **self.task(place.task),
            "pool": self.names.pool(place.pool),
            "standing": place.standing.value,
            "takes_room_of": sum(self.sight.sees(self._policy_of(one)) for one in place.waits_for),
        }

    def preempted(self, one: Any) -> Row:
        taker = self.task(one.beneficiary)
        if not self.sight.sees(self._policy_of(one.beneficiary)):
            taker = {**taker, "task": "", "queue": ""}
        row = self.task(one.task)
        group = self.groups.get(one.task)
        returns = group is not None and group.queue in self.after.returning
        return {
            **row,
            "pool": self.names.pool(one.pool),
            "waits_again": returns,
            "beneficiary": {key: taker[key] for key in ("task", "name", "queue", "policy")},
        }

    def rejected(self, one: Any) -> Row:
        return {
            **self._of_run(one.run, [head.task for head in one.run.heads], one.run.count),
            "code": "never_fits",
            "sentence": " ".join(f"{k} {v}." for k, v in one.problems.items()),
        }

    def waiting(self, pair: Any) -> Row:
        run, wait = pair
        reason = tell(to_data(wait.reasons[0]), self.names, now=self.now)
        return {
            **self._of_run(run, wait.tasks, wait.count),
            "code": reason.code,
            "sentence": reason.sentence,
            "help": reason.help,
        }

    def closed(self) -> tuple[list[tuple[Id, int]], Callable[[tuple[Id, int]], Row]]:
        """Queues whose tasks become drafts: all of a closed one's, or those of who lose rights."""
        live = {queue.id for queue in self.after.snapshot.queues}
        left = [
            (queue.id, max(self.before.waiting[queue.id] - self.after.waiting[queue.id], 0))
            for queue in self.before.snapshot.queues
            if self.sight.sees(queue.policy)
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
        before, after = policy_uses(self.without.snapshot), policy_uses(self.with_it.snapshot)
        parents = {policy.id: policy.parent for policy in self.after.snapshot.policies}
        starts = Counter(self._policy_of(one.task) for one in self.difference.starts)
        preempted = Counter(self._policy_of(one.task) for one in self.difference.preempted)
        for policy in filter(self.sight.sees, _in_order(before, after)):
            parent = parents.get(policy)
            yield {
                "policy": self.names.policy(policy),
                "parent": self.names.policy(parent) if parent is not None else None,
                "before": _policy_told(before.get(policy)),
                "after": _policy_told(after.get(policy)),
                "starts": starts[policy],
                "preempted": preempted[policy],
            }

    def pools(self) -> Iterable[Row]:
        if not self.sight.is_whole:
            # What a pool has in use tells of others.
            return
        before, after = pool_uses(self.without.snapshot), pool_uses(self.with_it.snapshot)
        for pool in _in_order(before, after):
            yield {
                "pool": self.names.pool(pool),
                "before": _pool_told(before.get(pool)),
                "after": _pool_told(after.get(pool)),
            }

    def _of_run(self, run: Run, tasks: Sequence[Id], count: int) -> Row:
        return {
            "queue": self.names.queue(run.queue),
            "policy": self.names.policy(self.queue_policies[run.queue]),
            "count": count,
            "tasks": [
                {"task": task, "name": self.names.tasks.get(str(task), "")}
                for task in tasks[:MOST_EQUAL]
            ],
        }


def _named_tasks(difference: Difference) -> Iterable[Id]:
    """Those that rows within their bounds may name."""
    for place in difference.starts[:MOST_ROWS]:
        yield place.task
    for victim in difference.preempted[:MOST_ROWS]:
        yield from (victim.task, victim.beneficiary)
    for tasks in (difference.moved, difference.delayed, difference.spared):
        yield from tasks[:MOST_ROWS]
    for never in difference.rejected[:MOST_ROWS]:
        yield from (head.task for head in never.run.heads[:MOST_EQUAL])
    for _, wait in sorted(difference.waiting, key=lambda pair: -pair[1].count)[:MOST_ROWS]:
        yield from wait.tasks[:MOST_EQUAL]
        yield from (task for one in wait.reasons[0].details for task in one.tasks[:MOST_EQUAL])


def _names_of_tasks(ids: Iterable[Id]) -> dict[str, str]:
    rows = Task.objects.filter(pk__in=[str(one) for one in dict.fromkeys(ids)])
    return {str(pk): name for pk, name in rows.values_list("pk", "name")}


def _groups(*snapshots: Snapshot) -> dict[Id, Running]:
    return {
        held.task: group
        for snapshot in snapshots
        for group in snapshot.running
        for held in group.tasks
    }


def _runs(*snapshots: Snapshot) -> dict[Id, Id]:
    """The queue of every task that waits now."""
    return {
        head.task: run.queue
        for snapshot in snapshots
        for run in snapshot.runs
        for head in run.heads
    }


def _by_id(*rows: Iterable[Any]) -> dict[int, str]:
    return {int(row.id): row.name for side in rows for row in side}


def _in_order(*sides: Mapping[Id, object]) -> list[Id]:
    return list(dict.fromkeys(key for side in sides for key in side))


def _policy_told(use: PolicyUse | None) -> Row | None:
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


def _pool_told(use: PoolUse | None) -> Row | None:
    if use is None:
        return None
    return {
        "capacity": _texts(use.capacity),
        "use": _texts(use.use),
        "running": use.running,
    }


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {key: milli_text(amount) for key, amount in sorted(amounts.items())}
