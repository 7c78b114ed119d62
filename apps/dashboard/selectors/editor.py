"""What the editor of the resource configuration starts from, as plain data."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from apps.accounts.models import User
from apps.configuration.selectors import (
    draft_document,
    live_document,
    revisions_visible_to,
)
from apps.dashboard.selectors.current_tasks import CurrentTasks, current_tasks
from apps.dashboard.selectors.pools import PoolFacts, pool_facts
from apps.nodes.models import Volume
from apps.policies.document import Document, as_data
from apps.policies.extra_permissions import CAPABILITIES, ROOT
from apps.policies.models import DraftState, Policy, Pool, Queue
from apps.usage.selectors.current_usage import LiveAttempt

Data = dict[str, Any]


def editor_state(user: User) -> Data:
    """Draft and live document, who saved last, and the figures of now; a fixed number of queries.

    The version is read before the document: if another user saves in between, the next save of
    this reader is refused, instead of writing over what was never read.
    """
    draft = DraftState.objects.select_related("saved_by").get(id=1)
    latest = revisions_visible_to(user).values_list("number", flat=True).first()
    return {
        "draft": as_data(draft_document()),
        "version": draft.version,
        "base_revision": draft.base_revision,
        "revision": latest or 0,
        "saved_at": draft.saved_at.isoformat() if draft.saved_at else None,
        "saved_by": draft.saved_by.username if draft.saved_by else None,
        "live": _without_policies(live_document()),
        "facts": _facts(),
    }


def editor_choices() -> Data:
    """What fields of a pool or profile offer."""
    volumes = Volume.objects.filter(removed_at__isnull=True).order_by("name")
    return {
        "policies": list(
            Policy.objects.filter(removed_at__isnull=True)
            .order_by("name")
            .values_list("name", flat=True)
        ),
        "volumes": list(volumes.values_list("name", flat=True)),
        "permissions": [ROOT, *(f"capability:{name}" for name in sorted(CAPABILITIES))],
    }


def _without_policies(document: Document) -> Data:
    data = as_data(document)
    data.pop("policies", None)
    return data


def _facts() -> Data:
    """Use, running and waiting, by the keys that draft and live have in common."""
    current = current_tasks()
    pools = list(Pool.objects.filter(removed_at__isnull=True))
    queues = list(Queue.objects.filter(removed_at__isnull=True).select_related("policy", "profile"))
    return {
        "pools": _pools(pool_facts(pools, current), current.attempts),
        "profiles": _profiles(queues, current, {pool.pk: str(pool.key) for pool in pools}),
        "queues": {
            queue.name: {
                "policy": queue.policy.name,
                "waiting": current.waiting[queue.pk].count if queue.pk in current.waiting else 0,
            }
            for queue in queues
        },
    }


def _pools(facts: Iterable[PoolFacts], attempts: Iterable[LiveAttempt]) -> Data:
    usages: defaultdict[int, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for one in attempts:
        for key, amount in one.amounts.items():
            usages[one.pool_id][key] += amount
    return {str(one.pool.key): _pool(one, usages[one.pool.pk]) for one in facts}


def _pool(facts: PoolFacts, usage: Mapping[str, int]) -> Data:
    return {
        "reserved": facts.usage.reserved,
        "over": facts.usage.over_quota,
        "usage": dict(usage),
        "configured": facts.configured,
        "usable": facts.usable,
        "nodes": facts.nodes,
        "healthy": facts.healthy,
        "is_simulated": facts.is_simulated,
        "is_paused": facts.pool.is_paused,
        "pause_reason": facts.pool.pause_reason,
        "drift": [one.sentence for one in facts.served.differences],
    }


def _profiles(queues: Iterable[Queue], current: CurrentTasks, pool_keys: Mapping[int, str]) -> Data:
    profile_of = {queue.pk: str(queue.profile.key) for queue in queues}
    counted: defaultdict[str, Data] = defaultdict(lambda: {"running": 0, "waiting": 0, "in": {}})
    for one in current.attempts:
        # Work of a closed queue runs on and belongs to no profile that is shown.
        if one.queue_id in profile_of:
            counts = counted[profile_of[one.queue_id]]
            counts["running"] += 1
            pool = pool_keys.get(one.pool_id, "")
            counts["in"][pool] = counts["in"].get(pool, 0) + 1
    for queue, waiting in current.waiting.items():
        if queue in profile_of:
            counted[profile_of[queue]]["waiting"] += waiting.count
    return dict(counted)
