"""What a user may see of nodes and volumes, and what the nodes of a pool have."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from apps.access.permissions import rows_with_permission
from apps.accounts.memberships import with_groups_of_now
from apps.accounts.models import User
from apps.accounts.selectors import Person, is_admin
from apps.core.units import milli
from apps.nodes.capacity import NodeCapacity, PoolCapacity, pool_capacity
from apps.nodes.models import (
    RETIRED_INDEX,
    Device,
    DeviceState,
    Installation,
    Node,
    NodeState,
    PoolDrift,
    ServingProcess,
    Volume,
)
from apps.nodes.permissions import CHANGE, VIEW
from apps.policies.models import Pool


def nodes_visible_to(user: Person) -> QuerySet[Node]:
    """Nodes are for administrators: they show pools, addresses and other users' tasks."""
    live = Node.objects.filter(removed_at__isnull=True)
    return live if is_admin(user) else live.none()


def is_suspended() -> bool:
    """Whether scheduling is suspended until an administrator confirms a restored database."""
    return Installation.objects.filter(id=1, restored_at__isnull=False).exists()


def devices_not_replaced() -> QuerySet[Device]:
    """All but those whose place another one has taken: these stay for their history alone."""
    return Device.objects.filter(index__lt=RETIRED_INDEX)


def serving_processes() -> list[str]:
    """The names of the processes that serve nodes now, by the database's clock."""
    alive = ServingProcess.objects.filter(alive_until__gte=Now())
    return list(alive.values_list("pk", flat=True))


def devices_visible_to(user: Person) -> QuerySet[Device]:
    """Devices of the nodes that the user sees."""
    return Device.objects.filter(node__in=nodes_visible_to(user))


def volumes_visible_to(user: Person) -> QuerySet[Volume]:
    """Volumes are for administrators; others find those that they may mount in their profiles."""
    live = Volume.objects.filter(removed_at__isnull=True)
    return live if is_admin(user) else live.none()


def volumes_mountable_by(
    user: User, names: Collection[str], *, is_by_owner: bool = True
) -> dict[str, bool]:
    """Those of the named volumes that tasks of the user may mount now, and whether to write there.

    Rules and groups are read again each time. No statement without names, one where none of the
    volumes is restricted: such volumes are also open to tasks of deactivated users.

    Args:
        is_by_owner: False: another user or a service account wrote what the task runs, and mounts
            nothing by the role of an administrator that the user may have.
    """
    if not names:
        return {}
    live = Volume.objects.filter(removed_at__isnull=True, name__in=names).order_by()
    restricted = dict(live.values_list("name", "is_restricted"))
    found = {name: True for name, is_restricted in restricted.items() if not is_restricted}
    if len(found) < len(restricted):
        reader = with_groups_of_now(user, is_administering=is_by_owner)
        rows = rows_with_permission(Volume, reader, VIEW, may_write=CHANGE)
        rows = rows.filter(name__in=names, is_restricted=True).order_by()
        found |= dict(rows.values_list("name", F("may_write")))
    return found


def capacity_by_pool(pools: Iterable[Pool]) -> dict[int, PoolCapacity]:
    """What the healthy nodes of each pool have, and what is configured. Two queries."""
    configured = {pool.pk: {k: milli(v) for k, v in pool.capacity.items()} for pool in pools}
    devices: dict[int, list[tuple[str, str, int]]] = defaultdict(list)
    counted = devices_not_replaced().filter(node__pool__in=configured)
    rows = counted.order_by().values_list("node_id", "state", "model").annotate(n=Count("pk"))
    for node_id, state, model, count in rows:
        devices[node_id].append((state, model, count))
    nodes: dict[int, list[NodeCapacity]] = defaultdict(list)
    live = Node.objects.filter(pool__in=configured, removed_at__isnull=True)
    for pk, pool, state, capacity in live.values_list("pk", "pool_id", "state", "capacity"):
        nodes[pool or 0].append(_node_capacity(state, capacity, devices.get(pk)))
    return {pool: pool_capacity(amounts, nodes[pool]) for pool, amounts in configured.items()}


def drifting_since() -> dict[int, datetime]:
    """Per pool whose nodes do not have what is configured, when that was first seen."""
    return dict(PoolDrift.objects.values_list("pool_id", "since"))


def _node_capacity(
    state: str, capacity: dict[str, str], devices: list[tuple[str, str, int]] | None
) -> NodeCapacity:
    counts: dict[str, int] = {}
    models: dict[str, int] = {}
    for device_state, model, count in devices or ():
        counts[device_state] = counts.get(device_state, 0) + count
        if model and device_state != DeviceState.MISSING:
            models[model] = models.get(model, 0) + count
    return NodeCapacity(
        is_healthy=state == NodeState.HEALTHY,
        amounts={key: milli(text) for key, text in capacity.items()},
        devices=None if devices is None else counts.get(DeviceState.HEALTHY, 0),
        missing=counts.get(DeviceState.MISSING, 0),
        occupied=counts.get(DeviceState.OCCUPIED, 0),
        models=models,
    )


@dataclass(frozen=True, slots=True)
class ShareEnforcement:
    """Whether tasks are held to their share of a device in a pool.

    `memory` and `compute` are "enforced" when every node of the pool with devices does it, else
    "accounted": the ledger knows the share, and nothing stops a task that takes more. `methods`
    says by what ("mig", "mps", "accounted"), `detail` why it is no more than accounted.
    """

    memory: str
    compute: str
    methods: tuple[str, ...]
    detail: str


def enforcement_by_pool() -> dict[int, ShareEnforcement]:
    """Per pool that has devices, what its nodes last said; one query."""
    there = Device.objects.filter(node=OuterRef("pk")).exclude(state=DeviceState.MISSING)
    nodes = Node.objects.filter(Exists(there), removed_at__isnull=True, pool__isnull=False)
    reports: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for pool, enforcement, is_simulated in nodes.values_list(
        "pool_id", "report__enforcement", "is_simulated"
    ):
        reports[pool or 0].append(enforcement or _not_reported(is_simulated=is_simulated))
    return {pool: _shares(answers) for pool, answers in reports.items()}


def _not_reported(*, is_simulated: bool) -> dict[str, Any]:
    detail = "the devices are simulated" if is_simulated else "the node has not reported yet"
    return {"memory": "accounted", "compute": "accounted", "detail": detail}


def _shares(answers: list[dict[str, Any]]) -> ShareEnforcement:
    reasons = Counter(answer["detail"] for answer in answers if answer["detail"])
    return ShareEnforcement(
        memory=_level(answer["memory"] for answer in answers),
        compute=_level(answer["compute"] for answer in answers),
        methods=tuple(sorted({answer["memory"] for answer in answers})),
        detail="; ".join(
            f"{count} of {len(answers)} nodes: {why}" for why, count in sorted(reasons.items())
        ),
    )


def _level(methods: Iterable[str]) -> str:
    return "accounted" if "accounted" in methods else "enforced"


@dataclass(frozen=True, slots=True)
class ClosedNodes:
    """The nodes of a pool that take nothing new.

    `text` says how many, and why; `reasons` is what administrators wrote when they paused them,
    for users who see the pool.
    """

    text: str
    is_whole_pool: bool
    reasons: tuple[str, ...] = ()


def closed_nodes() -> dict[int, ClosedNodes]:
    """Per pool that has nodes which take nothing new."""
    found: dict[int, Counter[str]] = defaultdict(Counter)
    written: dict[int, list[str]] = defaultdict(list)
    sizes: Counter[int] = Counter()
    rows = Node.objects.filter(removed_at__isnull=True, pool__isnull=False)
    for pool, state, paused_at, is_draining, reason in rows.order_by("name").values_list(
        "pool_id", "state", "paused_at", "is_draining", "pause_reason"
    ):
        sizes[pool] += 1
        if is_draining:
            found[pool]["draining"] += 1
        elif paused_at is not None:
            found[pool]["paused"] += 1
            written[pool] += [reason.strip()] if reason.strip() else []
        elif state != NodeState.HEALTHY:
            found[pool][str(NodeState(state).label)] += 1
    return {
        pool: ClosedNodes(
            text=_closed_text(states, sizes[pool]),
            is_whole_pool=states.total() == sizes[pool],
            reasons=tuple(dict.fromkeys(written[pool])),
        )
        for pool, states in found.items()
    }


def _closed_text(states: Counter[str], size: int) -> str:
    closed = states.total()
    nodes = "node" if size == 1 else "nodes"
    takes = "takes" if closed == 1 else "take"
    why = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return f"{closed} of {size} {nodes} {takes} nothing new: {why}"


def nodes_unsettled() -> QuerySet[Node]:
    """Nodes that run what a restored database does not know, or have not reported yet."""
    row = Installation.objects.get(id=1)
    live = Node.objects.filter(removed_at__isnull=True, off_at__isnull=True).order_by("name")
    if row.restore_confirmed_at is None:
        return live.filter(unknown_work__gt=0)
    silent = Q(last_seen_at__isnull=True) | Q(last_seen_at__lt=row.restore_confirmed_at)
    return live.filter(Q(unknown_work__gt=0) | silent)
