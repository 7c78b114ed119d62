"""What the engine looks at: the state of one moment, as plain frozen data.

Ids are opaque: whatever the caller uses as key, of one type per kind, sortable. Times are whole
microseconds since any fixed moment, the same for all of them. Amounts are thousandths.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from apps.allocation.engine.quantities import NOTHING, WHOLE, Quantities

Id = int | str


class Queueing(StrEnum):
    BEST_EFFORT = "best_effort"
    STRICT = "strict"


class Preemption(StrEnum):
    """Who may take capacity from whom, each level adding to the one before."""

    NONE = "none"
    RECLAIM = "reclaim"
    PRIORITY = "priority"
    RANK = "rank"


class OverQuota(StrEnum):
    PRIORITY = "priority"
    FAIR_SHARE = "fair_share"


@dataclass(frozen=True, slots=True)
class Settings:
    """Of the whole configuration; `is_enabled` is the global switch of resource management."""

    is_enabled: bool = True
    queueing: Queueing = Queueing.BEST_EFFORT
    preemption: Preemption = Preemption.RECLAIM
    over_quota: OverQuota = OverQuota.PRIORITY
    has_consolidation: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of a pool.

    Its GPUs are `gpu_indices`, or 0, 1, ... as many as its capacity names when that is None.
    """

    id: Id
    name: str
    capacity: Quantities
    model: str | None = None
    gpu_indices: tuple[int, ...] | None = None
    # Broken, or used by something that is not ours: counted in the capacity, never given out.
    unavailable_gpus: tuple[int, ...] = ()
    # False while drained, paused or out of reach: what runs there goes on, nothing new comes.
    is_schedulable: bool = True


@dataclass(frozen=True, slots=True)
class Pool:
    """Capacity that is given out; `profiles` in serving order, `nodes` empty for totals only."""

    id: Id
    name: str
    capacity: Quantities
    profiles: tuple[Id, ...] = ()
    nodes: tuple[Node, ...] = ()
    has_backfill: bool = True
    is_paused: bool = False
    # False: nothing serves it, so it admits nothing.
    has_server: bool = True
    # None: as the settings say.
    preemption: Preemption | None = None


@dataclass(frozen=True, slots=True)
class Profile:
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
class Policy:
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
    queueing: Queueing | None = None
    is_paused: bool = False
    # Running work of a removed policy holds its room, has no reservation, may be taken first.
    is_removed: bool = False


@dataclass(frozen=True, slots=True)
class Queue:
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
class Head:
    """One waiting task of a run."""

    submitted_us: int
    task: Id


@dataclass(frozen=True, slots=True)
class Run:
    """Equal waiting tasks of a queue: everything that could tell them apart is a field here.

    `count` is all of them; `heads` the first ones, in order of submission and id, at least as many
    as the pools of the profile could hold empty (or all of them, when fewer wait).
    """

    queue: Id
    # Of each member: the profile's live request, or the task's own with dynamic capacity.
    request: Quantities
    count: int
    heads: tuple[Head, ...]
    replicas: int = 1
    priority: int = 0
    is_preemptible: bool = True
    # Set where a user limit exists above the queue, otherwise None.
    user: Id | None = None
    can_exceed_limit: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """A part of one GPU: its index on the node and thousandths of it (1000: the whole GPU)."""

    index: int
    milli: int


@dataclass(frozen=True, slots=True)
class Member:
    """Where one member of a task runs; `devices` empty: not known, or it asks for no GPU."""

    node: Id
    devices: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True)
class Held:
    """One running task of a group; `members` empty in a pool without nodes."""

    task: Id
    submitted_us: int = 0
    started_us: int = 0
    members: tuple[Member, ...] = ()
    checkpointed_us: int | None = None
    preemptions: int = 0
    # Of stopping work: the task that takes its room, None when it stops for another reason.
    stops_for: Id | None = None
    # Of stopping work: it leaves for good, and nobody was promised its room.
    is_leaving: bool = False
    # False: it may be preempted, but would not start again elsewhere.
    is_movable: bool = True


@dataclass(frozen=True, slots=True)
class Running:
    """Equal work that holds room: starting, running, or stopping and not yet gone.

    `tasks` must be complete in pools with nodes and where work may be taken back.
    """

    pool: Id
    policy: Id
    profile: Id
    # What each member was given; it stays so until the task ends.
    request: Quantities
    tasks: tuple[Held, ...]
    queue: Id | None = None
    replicas: int = 1
    priority: int = 0
    is_preemptible: bool = True
    user: Id | None = None
    can_exceed_limit: bool = False
    is_stopping: bool = False


@dataclass(frozen=True, slots=True)
class Usual:
    """A shape of work that a pool usually gets, for placement; pool None: every pool."""

    request: Quantities
    frequency: int
    replicas: int = 1
    models: tuple[str, ...] = ()
    pool: Id | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment, in any order of rows: the plan depends on contents only."""

    settings: Settings = Settings()
    now_us: int = 0
    pools: tuple[Pool, ...] = ()
    profiles: tuple[Profile, ...] = ()
    policies: tuple[Policy, ...] = ()
    queues: tuple[Queue, ...] = ()
    runs: tuple[Run, ...] = ()
    running: tuple[Running, ...] = ()
    usual: tuple[Usual, ...] = field(default=())
