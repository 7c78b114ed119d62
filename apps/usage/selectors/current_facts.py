"""What pools, policies and queues hold now, and what waits for them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from apps.policies.models import Queue
from apps.policies.selectors import policy_families
from apps.tasks.selectors.attempt_sums import live_attempt_sums
from apps.usage.selectors.waiting_tasks import WaitingTasks, waiting_by_queue, waiting_sum


@dataclass(frozen=True, slots=True)
class CurrentFacts:
    """Figures of one of them.

    `used` is in thousandths per key, `running` counts the tasks that hold it, `oldest_wait_at` is
    since when the first of the `waiting` ones waits.
    """

    used: Mapping[str, int] = field(default_factory=dict)
    running: int = 0
    waiting: int = 0
    oldest_wait_at: datetime | None = None


def current_of_queues(queues: Iterable[int]) -> dict[int, CurrentFacts]:
    """Of each queue, in three queries."""
    wanted = list(queues)
    used, running = _held("queue_id")
    waiting = waiting_by_queue(wanted)
    return {pk: _facts(used.get(pk), running[pk], waiting[pk]) for pk in wanted}


def current_of_pools(pools: Iterable[int]) -> dict[int, CurrentFacts]:
    """Of each pool, in one query; tasks wait in queues, not in pools."""
    used, running = _held("pool_id")
    return {pk: _facts(used.get(pk), running[pk], WaitingTasks()) for pk in pools}


def current_of_policies(policies: Iterable[int]) -> dict[int, CurrentFacts]:
    """Of each policy with those below it, in five queries."""
    used, running = _held("policy_id")
    families = policy_families(policies)
    queues: defaultdict[int, list[int]] = defaultdict(list)
    concerned = {pk for family in families.values() for pk in family}
    live = Queue.objects.filter(policy__in=concerned, removed_at__isnull=True)
    for queue, policy in live.values_list("pk", "policy_id"):
        queues[policy].append(queue)
    waiting = waiting_by_queue([pk for those in queues.values() for pk in those])
    found: dict[int, CurrentFacts] = {}
    for policy, family in families.items():
        sums: Counter[str] = Counter()
        for pk in family:
            sums.update(used.get(pk, {}))
        waits = waiting_sum(waiting[queue] for pk in family for queue in queues[pk])
        found[policy] = _facts(sums, sum(running[pk] for pk in family), waits)
    return found


def _held(column: str) -> tuple[dict[int, Counter[str]], Counter[int]]:
    """Amounts and tasks per value of this column of live attempts."""
    used: dict[int, Counter[str]] = {}
    running: Counter[int] = Counter()
    for one in live_attempt_sums():
        key: int = getattr(one, column)
        used.setdefault(key, Counter()).update(one.amounts)
        running[key] += one.count
    return used, running


def _facts(used: Mapping[str, int] | None, running: int, waiting: WaitingTasks) -> CurrentFacts:
    return CurrentFacts(dict(used or {}), running, waiting.count, waiting.oldest)
