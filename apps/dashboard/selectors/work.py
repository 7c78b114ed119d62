"""What runs and what waits, read once for all parts of a card."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Q

from apps.dashboard.selectors.use import Held, amounts_of, held_now, over_quota_tasks
from apps.dashboard.selectors.waiting import Waiting, waiting_by_queue


@dataclass(frozen=True, slots=True)
class Work:
    """`over` are the running tasks that count as over quota; `waiting` is per queue."""

    held: tuple[Held, ...]
    over: frozenset[UUID]
    waiting: Mapping[int, Waiting]


def work_of_all() -> Work:
    """Of the whole installation, in four queries."""
    held = held_now()
    return Work(tuple(held), over_quota_tasks(held, amounts_of()), waiting_by_queue())


def work_of(*, policy_ids: Iterable[int], queue_ids: Iterable[int]) -> Work:
    """What runs under these policies and waits in these queues, in four queries."""
    policies = list(policy_ids)
    held = held_now(Q(policy__in=policies))
    over = over_quota_tasks(held, amounts_of(policies))
    return Work(tuple(held), over, waiting_by_queue(queue_ids))
