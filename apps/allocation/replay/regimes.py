"""Under which rules a history is replayed: partitions, one queue, or policies at some level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from apps.allocation.engine.quantities import GPU, WHOLE, Quantities
from apps.allocation.engine.snapshot import (
    OverQuota,
    Policy,
    Pool,
    Preemption,
    Profile,
    Queue,
    Queueing,
    Settings,
    Snapshot,
)
from apps.allocation.replay.trace import Job

STATIC = "static"
FIFO = "fifo"
# The profile of all work, and the one queue of `fifo`.
WORK = "work"
EVERYBODY = "everybody"


@dataclass(frozen=True, slots=True)
class Regime:
    """`name` as it is typed and shown; the settings count where policies share one pool."""

    name: str
    preemption: Preemption = Preemption.NONE
    over_quota: OverQuota = OverQuota.PRIORITY

    @property
    def has_policies(self) -> bool:
        """Whether teams share one pool, each with a reservation."""
        return self.name not in {STATIC, FIFO}


def _policies(preemption: Preemption, over_quota: OverQuota) -> Regime:
    return Regime(f"{preemption.value}/{over_quota.value}", preemption, over_quota)


REGIMES = {
    regime.name: regime
    for regime in (
        Regime(STATIC),
        Regime(FIFO),
        *(_policies(level, OverQuota.PRIORITY) for level in Preemption),
        *(
            _policies(level, OverQuota.FAIR_SHARE)
            for level in Preemption
            if level is not Preemption.RANK
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Part:
    """What shares nothing with any other part: a configuration and the jobs under it.

    `queues` names the queue of each team.
    """

    base: Snapshot
    jobs: Sequence[Job]
    queues: Mapping[str, str]


def reservations(jobs: Iterable[Job], *, gpus: int, start_s: int, end_s: int) -> dict[str, int]:
    """Whole GPUs for each team: its share of the GPU time submitted from `start_s` to `end_s`.

    At least its largest job, rounded down otherwise.
    """
    asked: dict[str, int] = {}
    largest: dict[str, int] = {}
    for job in jobs:
        is_measured = start_s <= job.submitted_s < end_s
        work = job.duration_s * job.gpu_milli if is_measured else 0
        asked[job.team] = asked.get(job.team, 0) + work
        largest[job.team] = max(largest.get(job.team, 0), -(-job.gpu_milli // WHOLE))
    total = max(sum(asked.values()), 1)
    return {team: max(gpus * asked[team] // total, largest[team]) for team in sorted(asked)}


def parts(
    regime: Regime, jobs: Sequence[Job], reserved: Mapping[str, int], gpus: int
) -> tuple[Part, ...]:
    """What the engine is given to decide.

    `static` is one part for each team: partitions share nothing, so each is decided by itself.
    """
    if regime.name == STATIC:
        return tuple(_partition(jobs, team, amount) for team, amount in reserved.items())
    if regime.name == FIFO:
        base = _base(regime, gpus, {EVERYBODY: 0}, Queueing.STRICT)
        return (Part(base, jobs, dict.fromkeys(reserved, EVERYBODY)),)
    base = _base(regime, gpus, reserved, Queueing.BEST_EFFORT)
    return (Part(base, jobs, {team: team for team in reserved}),)


def _partition(jobs: Sequence[Job], team: str, gpus: int) -> Part:
    base = _base(Regime(STATIC), gpus, {team: gpus}, Queueing.STRICT)
    return Part(base, [job for job in jobs if job.team == team], {team: team})


def _base(regime: Regime, gpus: int, reserved: Mapping[str, int], queueing: Queueing) -> Snapshot:
    """One pool without nodes, one profile whose tasks bring their request, a queue for each."""
    return Snapshot(
        settings=Settings(
            queueing=queueing, preemption=regime.preemption, over_quota=regime.over_quota
        ),
        pools=(Pool(WORK, WORK, Quantities.whole(gpu=gpus), profiles=(WORK,)),),
        profiles=(
            Profile(WORK, WORK, Quantities.whole(gpu=1), pools=(WORK,), policies=tuple(reserved)),
        ),
        policies=tuple(
            Policy(name, name, rank, reserved=Quantities.of({GPU: amount * WHOLE}))
            for rank, (name, amount) in enumerate(reserved.items())
        ),
        queues=tuple(Queue(name, policy=name, profile=WORK) for name in reserved),
    )
