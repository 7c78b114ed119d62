"""What the engine decided, as plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from apps.allocation.engine.model.reasons import Reason
from apps.allocation.engine.model.snapshot import Id, MemberPlacement


class Tier(StrEnum):
    """Who covers a task: every level, its top level only, or not even that."""

    RESERVED = "reserved"
    BORROWED = "borrowed"
    OVER_QUOTA = "over_quota"


@dataclass(frozen=True, slots=True)
class Placement:
    """A waiting task that starts now.

    `members`, one per replica and empty in a pool without nodes, name node and GPU of each.
    `waits_for` are the tasks that have to be gone before it starts.
    """

    task: Id
    queue: Id
    pool: Id
    tier: Tier
    members: tuple[MemberPlacement, ...] = ()
    waits_for: tuple[Id, ...] = ()


@dataclass(frozen=True, slots=True)
class Wait:
    """What is left of one queued group, and why. `index` is its place in `queued_groups`.

    `tasks` are the heads that wait, in order; `count` is all of them, those behind the heads
    included. `position` is that of the first one in its queue, counted from 1. The reasons hold
    for each of them: the dominant one first. Only `behind` differs, by the position.
    """

    index: int
    queue: Id
    tasks: tuple[Id, ...]
    count: int
    position: int
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Preempt:
    """A running task that is asked to stop so that `beneficiary` gets its capacity."""

    task: Id
    pool: Id
    beneficiary: Id


@dataclass(frozen=True, slots=True)
class Move:
    """A running task that is stopped and placed again at once inside its pool."""

    task: Id
    pool: Id
    beneficiary: Id
    members: tuple[MemberPlacement, ...] = ()


@dataclass(frozen=True, slots=True)
class PassFigures:
    """How much work the pass was."""

    walks: int = 0
    matches: int = 0
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """Every waiting head of the snapshot exactly once, placed or waiting.

    `displaced` are those of the waiting that the pass had placed before it needed their capacity
    for others: it does not place them once more.
    """

    placed: tuple[Placement, ...] = ()
    waiting: tuple[Wait, ...] = ()
    preempted: tuple[Preempt, ...] = ()
    moved: tuple[Move, ...] = ()
    displaced: tuple[Id, ...] = ()
    figures: PassFigures = PassFigures()
