"""What a replay showed: waits, use, preemptions and lost work, per team and overall."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from apps.allocation.engine.model.quantities import WHOLE
from apps.allocation.replay.estimates import Coverage, EstimateSample, EstimateSampler, coverage
from apps.allocation.replay.playback import ReplayResult, TaskRecord, play, saved_s
from apps.allocation.replay.regimes import Regime, ReplayPart, parts, reservations
from apps.allocation.replay.trace import TraceTask

HOUR = 3600


@dataclass(frozen=True, slots=True)
class ReplayTerms:
    """How a history is replayed; measured is from `start_s` until before `end_s`."""

    gpus: int
    start_s: int
    end_s: int
    checkpoint_s: int | None


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds, of the jobs that were submitted in the measured time."""

    mean_s: float = 0.0
    median_s: float = 0.0
    p95_s: int = 0
    longest_s: int = 0


@dataclass(frozen=True, slots=True)
class TeamMeasures:
    """A team, or all of them.

    `waits` is all time that a job waited, also after preemptions; `first_waits` ends with its
    first start. The rest is of whatever job: `used_s` is GPU time within the measured time,
    `preemptions` and `lost_s` (GPU time that was done again) count from its beginning on,
    `most_preempted` always.
    """

    name: str
    reserved: int
    tasks: int
    waits: Waits
    first_waits: Waits
    used_s: int
    preemptions: int
    most_preempted: int
    lost_s: int


@dataclass(frozen=True, slots=True)
class CoveredWaits:
    """Jobs with which all work of their team stayed within its reservation, when submitted.

    `waited_s`: for how many seconds anything waited that fitted its team's reservation.
    """

    tasks: int
    longest_wait_s: int
    waited_s: int


@dataclass(frozen=True, slots=True)
class ReplayReport:
    regime: Regime
    terms: ReplayTerms
    overall: TeamMeasures
    teams: tuple[TeamMeasures, ...]
    covered: CoveredWaits
    refused: int
    moments: int
    passes: int
    unsettled: int
    estimates: tuple[Coverage, ...]

    def utilisation(self, row: TeamMeasures, gpus: int) -> float:
        """Used GPU time by what `gpus` could give in the measured time."""
        span_s = self.terms.end_s - self.terms.start_s
        return row.used_s / (gpus * span_s) if gpus * span_s else 0.0


def replay(
    regime: Regime,
    tasks: Sequence[TraceTask],
    terms: ReplayTerms,
    *,
    on_progress: Callable[[int], None] = lambda _count: None,
    estimates_each: int | None = None,
) -> ReplayReport:
    """Play the whole history under one regime.

    Args:
        estimates_each: estimate the start of every so-manieth job that has to wait.
    """
    reserved = reservations(tasks, gpus=terms.gpus, start_s=terms.start_s, end_s=terms.end_s)
    result: list[ReplayResult] = []
    samples: list[EstimateSample] = []
    for part in parts(regime, tasks, reserved, terms.gpus):
        sampling = _sampler(part, terms, estimates_each)
        result.append(
            play(
                part,
                checkpoint_s=terms.checkpoint_s,
                on_progress=on_progress,
                observer=sampling,
            )
        )
        samples += sampling.samples if sampling else []
    return report(regime, terms, reserved, result, samples)


def _sampler(part: ReplayPart, terms: ReplayTerms, each: int | None) -> EstimateSampler | None:
    if each is None:
        return None
    return EstimateSampler(part.queues, start_s=terms.start_s, end_s=terms.end_s, each=each)


def report(
    regime: Regime,
    terms: ReplayTerms,
    reserved: Mapping[str, int],
    result: Sequence[ReplayResult],
    samples: Sequence[EstimateSample] = (),
) -> ReplayReport:
    records = [record for one in result for record in one.records]
    by_team: dict[str, list[TaskRecord]] = {team: [] for team in reserved}
    for record in records:
        by_team[record.task.team].append(record)
    covered = [wait_s(one, first=True) for one in _measured(records, terms) if one.was_covered]
    return ReplayReport(
        regime=regime,
        terms=terms,
        overall=_row("all", terms.gpus, records, terms),
        teams=tuple(_row(team, reserved[team], by_team[team], terms) for team in sorted(by_team)),
        covered=CoveredWaits(
            tasks=len(covered),
            longest_wait_s=max(covered, default=0),
            waited_s=sum(one.covered_wait_s for one in result),
        ),
        refused=sum(record.is_refused for record in records),
        moments=sum(one.moments for one in result),
        passes=sum(one.passes for one in result),
        unsettled=sum(one.unsettled for one in result),
        estimates=coverage(
            samples,
            {record.task.number: record for record in records},
            (terms.start_s + terms.end_s) // 2,
        ),
    )


def wait_s(record: TaskRecord, *, first: bool) -> int:
    """How long a job waited: until its first start, or in all."""
    ran = record.ran
    if first:
        return ran[0][0] - record.task.submitted_s
    return ran[-1][1] - record.task.submitted_s - sum(end - start for start, end in ran)


def _measured(records: Iterable[TaskRecord], terms: ReplayTerms) -> list[TaskRecord]:
    return [
        record
        for record in records
        if record.ran and terms.start_s <= record.task.submitted_s < terms.end_s
    ]


def _row(
    name: str, reserved: int, records: Sequence[TaskRecord], terms: ReplayTerms
) -> TeamMeasures:
    measured = _measured(records, terms)
    return TeamMeasures(
        name=name,
        reserved=reserved,
        tasks=len(measured),
        waits=_waits([wait_s(one, first=False) for one in measured]),
        first_waits=_waits([wait_s(one, first=True) for one in measured]),
        used_s=sum(_used(one, terms) for one in records) // WHOLE,
        preemptions=sum(end >= terms.start_s for one in records for _, end in one.ran[:-1]),
        most_preempted=max((len(one.ran) - 1 for one in records if one.ran), default=0),
        lost_s=sum(_lost(one, terms) for one in records) // WHOLE,
    )


def _waits(waits: list[int]) -> Waits:
    if not waits:
        return Waits()
    waits.sort()
    return Waits(
        mean_s=sum(waits) / len(waits),
        median_s=median(waits),
        p95_s=waits[(len(waits) * 95 + 99) // 100 - 1],
        longest_s=waits[-1],
    )


def _used(record: TaskRecord, terms: ReplayTerms) -> int:
    """Thousandths of a GPU times seconds, within the measured time."""
    spans = (min(end, terms.end_s) - max(start, terms.start_s) for start, end in record.ran)
    return record.task.gpu_milli * sum(max(span, 0) for span in spans)


def _lost(record: TaskRecord, terms: ReplayTerms) -> int:
    """Thousandths of a GPU times seconds that preemptions threw away."""
    return record.task.gpu_milli * sum(
        end - start - saved_s(end - start, terms.checkpoint_s)
        for start, end in record.ran[:-1]
        if end >= terms.start_s
    )
