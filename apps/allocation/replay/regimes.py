"""Under which rules a history is replayed: partitions, one queue, or policies at some level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from apps.allocation.engine.model.quantities import GPU, WHOLE, Quantities
from apps.allocation.engine.model.snapshot import (
    OverQuotaMode,
    PolicySnapshot,
    PoolSnapshot,
    PreemptionMode,
    ProfileSnapshot,
    QueueingMode,
    QueueSnapshot,
    SettingsSnapshot,
    Snapshot,
)
from apps.allocation.replay.trace import TraceTask

STATIC = "static"
FIFO = "fifo"
# The profile of all work, and the one queue of `fifo`.
WORK = "work"
EVERYBODY = "everybody"


@dataclass(frozen=True, slots=True)
class Regime:
    """`name` as it is typed and shown; the settings count where policies share one pool."""

    name: str
    preemption: PreemptionMode = PreemptionMode.NONE
    over_quota: OverQuotaMode = OverQuotaMode.PRIORITY

    @property
    def has_policies(self) -> bool:
        """Whether teams share one pool, each with a reservation."""
        return self.name not in {STATIC, FIFO}


def _policies(preemption: PreemptionMode, over_quota: OverQuotaMode) -> Regime:
    return Regime(f"{preemption.value}/{over_quota.value}", preemption, over_quota)


REGIMES = {
    regime.name: regime
    for regime in (
        Regime(STATIC),
        Regime(FIFO),
        *(_policies(level, OverQuotaMode.PRIORITY) for level in PreemptionMode),
        *(
            _policies(level, OverQuotaMode.FAIR_SHARE)
            for level in PreemptionMode
            if level is not PreemptionMode.RANK
        ),
    )
}


@dataclass(frozen=True, slots=True)
class ReplayPart:
    """What shares nothing with any other part: a configuration and the jobs under it.

    `queues` names the queue of each team.
    """

    base: Snapshot
    tasks: Sequence[TraceTask]
    queues: Mapping[str, str]


def reservations(
    tasks: Iterable[TraceTask], *, gpus: int, start_s: int, end_s: int
) -> dict[str, int]:
    """Whole GPUs for each team: its share of the GPU time submitted from `start_s` to `end_s`.

    At least its largest job, rounded down otherwise.
    """
    asked: dict[str, int] = {}
    largest: dict[str, int] = {}
    for task in tasks:
        is_measured = start_s <= task.submitted_s < end_s
        work = task.duration_s * task.gpu_milli if is_measured else 0
        asked[task.team] = asked.get(task.team, 0) + work
        largest[task.team] = max(largest.get(task.team, 0), -(-task.gpu_milli // WHOLE))
    total = max(sum(asked.values()), 1)
    return {team: max(gpus * asked[team] // total, largest[team]) for team in sorted(asked)}


def parts(
    regime: Regime, tasks: Sequence[TraceTask], reserved: Mapping[str, int], gpus: int
) -> tuple[ReplayPart, ...]:
    """The configurations and jobs that the engine decides.

    `static` is one part for each team: partitions share nothing, so each is decided by itself.
    """
    if regime.name == STATIC:
        return tuple(_partition(tasks, team, amount) for team, amount in reserved.items())
    if regime.name == FIFO:
        base = _base(regime, gpus, {EVERYBODY: 0}, QueueingMode.STRICT)
        return (ReplayPart(base, tasks, dict.fromkeys(reserved, EVERYBODY)),)
    base = _base(regime, gpus, reserved, QueueingMode.BEST_EFFORT)
    return (ReplayPart(base, tasks, {team: team for team in reserved}),)


def _partition(tasks: Sequence[TraceTask], team: str, gpus: int) -> ReplayPart:
    base = _base(Regime(STATIC), gpus, {team: gpus}, QueueingMode.STRICT)
    return ReplayPart(base, [task for task in tasks if task.team == team], {team: team})


def _base(
    regime: Regime, gpus: int, reserved: Mapping[str, int], queueing: QueueingMode
) -> Snapshot:
    """One pool without nodes, one profile whose tasks bring their request, a queue for each."""
    return Snapshot(
        settings=SettingsSnapshot(
            queueing=queueing, preemption=regime.preemption, over_quota=regime.over_quota
        ),
        pools=(PoolSnapshot(WORK, WORK, Quantities.whole(gpu=gpus), profiles=(WORK,)),),
        profiles=(
            ProfileSnapshot(
                WORK, WORK, Quantities.whole(gpu=1), pools=(WORK,), policies=tuple(reserved)
            ),
        ),
        policies=tuple(
            PolicySnapshot(name, name, rank, reserved=Quantities.of({GPU: amount * WHOLE}))
            for rank, (name, amount) in enumerate(reserved.items())
        ),
        queues=tuple(QueueSnapshot(name, policy=name, profile=WORK) for name in reserved),
    )
