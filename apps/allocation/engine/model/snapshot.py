"""The input of the engine: the state of one moment, as plain frozen data.

Ids are opaque: any sortable key of the caller's, of one type per kind of object. Times are whole
microseconds since any fixed moment, the same for all of them. Amounts are thousandths.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from apps.allocation.engine.model.quantities import NOTHING, WHOLE, Quantities

Id = int | str


class QueueingMode(StrEnum):
    BEST_EFFORT = "best_effort"
    STRICT = "strict"


class PreemptionMode(StrEnum):
    """Which task may take capacity from which, each level adding to the one before."""

    NONE = "none"
    RECLAIM = "reclaim"
    PRIORITY = "priority"
    RANK = "rank"


class OverQuotaMode(StrEnum):
    PRIORITY = "priority"
    FAIR_SHARE = "fair_share"


@dataclass(frozen=True, slots=True)
class SettingsSnapshot:
    """Of the whole configuration; `is_enabled` is the global switch of resource management."""

    is_enabled: bool = True
    queueing: QueueingMode = QueueingMode.BEST_EFFORT
    preemption: PreemptionMode = PreemptionMode.RECLAIM
    over_quota: OverQuotaMode = OverQuotaMode.PRIORITY
    has_consolidation: bool = False


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """A machine of a pool.

    Its GPUs are `gpu_indices`, or 0, 1, ... as many as its capacity names when that is None.
    """

    id: Id
    name: str
    capacity: Quantities
    model: str | None = None
    gpu_indices: tuple[int, ...] | None = None
    # Broken, or used by work of other systems: counted in the capacity, never given out.
    unavailable_gpus: tuple[int, ...] = ()
    # False while drained, paused or out of reach: its work goes on, no new work comes.
    is_schedulable: bool = True


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    """Capacity that is given out; `profiles` in serving order, `nodes` empty for totals only."""

    id: Id
    name: str
    capacity: Quantities
    profiles: tuple[Id, ...] = ()
    nodes: tuple[NodeSnapshot, ...] = ()
    has_backfill: bool = True
    is_paused: bool = False
    # False: nothing serves it, so it admits nothing.
    has_server: bool = True
    # None: as the settings say.
    preemption: PreemptionMode | None = None


@dataclass(frozen=True, slots=True)
class ProfileSnapshot:
    """What one task takes: `request` for each of `replicas` members.

    `pools` in routing order, `policies` in queuing order; `models`, when not empty, are the only
    device models that its work accepts.
    """

    id: Id
    name: str
    request: Quantities
    pools: tuple[Id, ...] = ()
    policies: tuple[Id, ...] = ()
    replicas: int = 1
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicySnapshot:
    """A user group's share. A key that `limit` does not name is unlimited.

    `rank` is its place in the order of all policies, which settles ties between fair shares.
    """

    id: Id
    name: str
    rank: int = 0
    parent: Id | None = None
    reserved: Quantities = NOTHING
    limit: Quantities = NOTHING
    # What one user may hold inside the policy.
    user_limit: Quantities = NOTHING
    weight_milli: int = WHOLE
    # None: as the settings say.
    queueing: QueueingMode | None = None
    is_paused: bool = False
    # Its budget of the month is spent, and no more of its tasks may start.
    is_spent: bool = False
    # Running work of a removed policy has no reservation, and is preempted first.
    is_removed: bool = False


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """One profile connected to one policy without children."""

    id: Id
    policy: Id
    profile: Id
    allows_over_quota: bool = True
    is_paused: bool = False
    min_runtime_s: int = 0
    # None: as often as need be.
    max_preemptions: int | None = None


@dataclass(frozen=True, slots=True)
class QueuedTask:
    """One waiting task of a group."""

    submitted_us: int
    task: Id


@dataclass(frozen=True, slots=True)
class QueuedGroup:
    """Equal waiting tasks of a queue: everything that distinguishes them is a field here.

    `count` is all of them; `heads` the first ones, in order of submission and id, at least as many
    as the pools of the profile could hold empty (or all of them, when fewer wait).
    """

    queue: Id
    # Of each member: the profile's live request, or the task's own with dynamic capacity.
    request: Quantities
    count: int
    heads: tuple[QueuedTask, ...]
    replicas: int = 1
    priority: int = 0
    is_preemptible: bool = True
    # Set where a user limit exists above the queue, otherwise None.
    user: Id | None = None
    can_exceed_limit: bool = False


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """A part of one GPU: its index on the node and thousandths of it (1000: the whole GPU)."""

    index: int
    milli: int


@dataclass(frozen=True, slots=True)
class MemberPlacement:
    """Where one member of a task runs; `devices` empty: not known, or it asks for no GPU."""

    node: Id
    devices: tuple[DeviceShare, ...] = ()


@dataclass(frozen=True, slots=True)
class RunningTask:
    """One running task of a group; `members` empty in a pool without nodes."""

    task: Id
    submitted_us: int = 0
    started_us: int = 0
    members: tuple[MemberPlacement, ...] = ()
    checkpointed_us: int | None = None
    preemptions: int = 0
    # Of stopping work: the task that gets its capacity, None when it stops for another reason.
    stops_for: Id | None = None
    # Of stopping work: it ends for good, and its capacity is promised to no task.
    is_leaving: bool = False
    # False: it may be preempted, but would not start again elsewhere.
    is_movable: bool = True


@dataclass(frozen=True, slots=True)
class RunningGroup:
    """Equal work that holds capacity: starting, running, or stopping and not yet gone.

    `tasks` must be complete in pools with nodes and where work may be preempted.
    """

    pool: Id
    policy: Id
    profile: Id
    # What each member was given; it keeps that until the task ends.
    request: Quantities
    tasks: tuple[RunningTask, ...]
    queue: Id | None = None
    replicas: int = 1
    priority: int = 0
    is_preemptible: bool = True
    user: Id | None = None
    can_exceed_limit: bool = False
    is_stopping: bool = False


@dataclass(frozen=True, slots=True)
class UsualShape:
    """A shape of work that a pool usually gets, for placement; pool None: every pool."""

    request: Quantities
    frequency: int
    replicas: int = 1
    models: tuple[str, ...] = ()
    pool: Id | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment, in any order of rows: the plan depends on contents only."""

    settings: SettingsSnapshot = SettingsSnapshot()
    now_us: int = 0
    pools: tuple[PoolSnapshot, ...] = ()
    profiles: tuple[ProfileSnapshot, ...] = ()
    policies: tuple[PolicySnapshot, ...] = ()
    queues: tuple[QueueSnapshot, ...] = ()
    queued_groups: tuple[QueuedGroup, ...] = ()
    running: tuple[RunningGroup, ...] = ()
    usual: tuple[UsualShape, ...] = field(default=())
