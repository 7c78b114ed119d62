"""When a waiting task will probably start: an estimate, with what it goes by."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.cache import cache
from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import Tenant
from apps.allocation.engine.reasons import Code
from apps.allocation.engine.snapshot import Head, Id, Snapshot
from apps.allocation.explaining.suspension import is_suspended
from apps.allocation.forecast import Basis, Estimate, NoEstimate, Why
from apps.allocation.forecast import expected_start as estimate
from apps.allocation.forecast.estimating import FUTURES
from apps.allocation.forecast.forward import stand_in
from apps.allocation.forecast.history import load_lengths
from apps.allocation.forecast.lengths import SECOND
from apps.allocation.loader.counted import load_counted
from apps.allocation.loader.texts import microseconds
from apps.tasks.models import Task
from apps.tasks.states import TaskState

# Estimates are work, and hardly change from one look to the next.
KEPT_S = 60
# Somebody waits for the answer: of what the estimator may go through at most, a part.
MOST_ROWS = 100_000
# Futures that end after fewer passes than this show no start of anybody but the first.
FEWEST_PASSES = 8
# Whoever stands further back in its run has no start in sight.
MOST_BEFORE = 2_000
# Of every other run, as many tasks behind its heads as are taken along.
MOST_BEHIND = 50
Line = Mapping[UUID, tuple[datetime | None, int | None]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# However much work ends, the task does not start before somebody does something.
_NOT_ROOM = frozenset({Code.DISABLED, Code.PAUSED, Code.NO_POOL, Code.NO_SERVER})
_BASES = {
    Basis.NOW: "The next pass starts it.",
    Basis.TIME_LIMIT: "Judged by the time limits of the work before it.",
    Basis.QUEUE: "Judged by how long {ended} earlier tasks of its queue ran.",
    Basis.ALL_QUEUES: "Judged by how long {ended} earlier tasks of all queues ran.",
}
# How much of others' work ended is told within an organisation only.
_ALL = "Judged by how long earlier tasks of all queues ran."
_OTHER_QUEUES = "Judged by how long earlier tasks of the queues before it ran."
_UNKNOWN = {
    Why.NOTHING_KNOWN: "Too little work has ended to judge by, and not all has a time limit.",
    Why.NOT_IN_SIGHT: "No start is in sight: see why it waits.",
}


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """An estimate, never a promise: four of five such tasks start between the two moments.

    `latest` None: later than anybody can say. `basis` is a word for programs, `sentence` says the
    same to people. Where nothing can be said both moments are None, and the two say why.
    """

    basis: str
    sentence: str
    earliest: datetime | None = None
    latest: datetime | None = None
    is_estimate: bool = True


def expected_start(task: Task) -> ExpectedStart | None:
    """When `task` will probably start, worked out at most once a minute; None: it does not wait."""
    if task.state != TaskState.QUEUED or task.run is None:
        return None
    if task.run.reason_code in _NOT_ROOM or is_suspended():
        return _told(NoEstimate(Why.NOT_IN_SIGHT))
    key = f"expected-start:{task.pk}:{task.generation}:{microseconds(task.submitted_at)}"
    kept: dict[str, Any] | None = cache.get(key)
    if kept is not None:
        return _unpacked(kept)
    known = _told(_estimated(task))
    cache.set(key, _packed(known), KEPT_S)
    return known


def _packed(known: ExpectedStart) -> dict[str, Any]:
    """As the cache keeps it, in JSON: moments as texts."""
    moments = {"earliest": known.earliest, "latest": known.latest}
    texts = {name: at.isoformat() if at is not None else None for name, at in moments.items()}
    return {**asdict(known), **texts}


def _unpacked(kept: dict[str, Any]) -> ExpectedStart:
    moments = {
        name: datetime.fromisoformat(kept[name]) if kept[name] is not None else None
        for name in ("earliest", "latest")
    }
    return ExpectedStart(**{**kept, **moments})


def _estimated(task: Task) -> Estimate | NoEstimate | None:
    """None where it would take too long."""
    loaded = load_counted(now_us=microseconds(timezone.now()))
    line = _line_before(task)
    if task.run_id not in loaded.run_ids or task.pk not in line:
        return NoEstimate(Why.NOT_IN_SIGHT)
    index = loaded.run_ids.index(task.run_id)
    snapshot = _competing(_with_line(loaded.snapshot, index, line), index)
    rows = len(snapshot.runs) + len(snapshot.running) + len(snapshot.policies)
    if FUTURES * rows * FEWEST_PASSES > MOST_ROWS:
        return None
    lengths, arrivals = load_lengths(snapshot)
    limits = {**lengths.limits, **_limits(line)}
    return estimate(
        snapshot,
        task=str(task.pk),
        lengths=replace(lengths, limits={**limits, **_limits_behind(snapshot, limits)}),
        arrivals=arrivals,
        most_rows=MOST_ROWS,
    )


def _line_before(task: Task) -> Line:
    """Its equals in order up to itself, with time of submission and limit in seconds."""
    equals = Task.objects.filter(run=task.run_id, state=TaskState.QUEUED)
    upto = Q(submitted_at__lt=task.submitted_at) | Q(
        submitted_at=task.submitted_at, pk__lte=task.pk
    )
    rows = equals.filter(upto).order_by("submitted_at", "pk")
    return {
        pk: (submitted, limit_s)
        for pk, submitted, limit_s in rows.values_list("pk", "submitted_at", "time_limit_s")[
            :MOST_BEFORE
        ]
    }


def _with_line(snapshot: Snapshot, index: int, line: Line) -> Snapshot:
    """All that stand before it in its run; of the other runs some that stand behind the heads."""
    heads = tuple(Head(microseconds(at), str(pk)) for pk, (at, _) in line.items())
    runs = [
        replace(run, count=min(run.count, len(run.heads) + MOST_BEHIND)) for run in snapshot.runs
    ]
    runs[index] = replace(runs[index], heads=heads, count=len(heads))
    return replace(snapshot, runs=tuple(runs))


def _competing(snapshot: Snapshot, index: int) -> Snapshot:
    """With the queues only that share a pool with that of the run at `index`.

    What waits for other pools could matter through limits and reservations in common; that is
    left to the width of the interval.
    """
    profiles = {queue.id: queue.profile for queue in snapshot.queues}
    pools = {profile.id: set(profile.pools) for profile in snapshot.profiles}
    wanted = pools[profiles[snapshot.runs[index].queue]]
    queues = tuple(queue for queue in snapshot.queues if pools[queue.profile] & wanted)
    kept = {queue.id for queue in queues}
    runs = tuple(run for run in snapshot.runs if run.queue in kept)
    return replace(snapshot, queues=queues, runs=runs)


def _limits(line: Line) -> dict[Id, int]:
    return {str(pk): limit_s * SECOND for pk, (_, limit_s) in line.items() if limit_s is not None}


def _limits_behind(snapshot: Snapshot, limits: Mapping[Id, int]) -> dict[Id, int]:
    """Whoever stands behind the heads of a run is taken to be like the last of them."""
    return {
        stand_in(index, run.heads[-1], number).task: limits[run.heads[-1].task]
        for index, run in enumerate(snapshot.runs)
        if run.heads and run.heads[-1].task in limits
        for number in range(1, run.count - len(run.heads) + 1)
    }


def _told(found: Estimate | NoEstimate | None) -> ExpectedStart:
    if found is None:
        return ExpectedStart("too_large", "There is too much work here to estimate it on the spot.")
    if isinstance(found, NoEstimate):
        return ExpectedStart(found.why.value, _UNKNOWN[found.why])
    by_others = found.basis is Basis.QUEUE and not found.ended
    words = _OTHER_QUEUES if by_others else _BASES[found.basis]
    if found.basis is Basis.ALL_QUEUES and Tenant.objects.exists():
        words = _ALL
    return ExpectedStart(
        basis=found.basis.value,
        sentence=words.format(ended=found.ended),
        earliest=_moment(found.earliest_us),
        latest=None if found.latest_us is None else _moment(found.latest_us),
    )


def _moment(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)
