"""When a waiting task will probably start: an estimate, with its basis."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.cache import cache
from django.db.models import Q
from django.utils import timezone

from apps.accounts.models import Tenant
from apps.allocation.engine.model.reasons import INELIGIBLE_CODES, ReasonCode
from apps.allocation.engine.model.snapshot import Id, QueuedGroup, QueuedTask, Snapshot
from apps.allocation.forecast import Basis, Estimate, NoEstimate, NoEstimateReason
from apps.allocation.forecast import expected_start as estimate
from apps.allocation.forecast.estimates import FUTURES
from apps.allocation.forecast.future import stand_in
from apps.allocation.forecast.history import load_run_times
from apps.allocation.forecast.run_times import SECOND
from apps.allocation.loader.queued_counts import load_with_queued_counts
from apps.allocation.loader.texts import microseconds
from apps.allocation.simulation.simulated_state import GroupKey
from apps.nodes.selectors import is_suspended
from apps.tasks.lifecycle.states import TaskState
from apps.tasks.models import Task
from apps.tasks.selectors.eligibility import ELIGIBLE

# Estimates are work, and hardly change from one request to the next.
KEPT_S = 60
# A page waits for the answer: a part of what the estimator may go through at most.
MOST_ROWS = 100_000
# Futures that end after fewer passes than this show no start but that of the first task.
FEWEST_PASSES = 8
# A task further back in its group has no start in sight.
MOST_BEFORE = 2_000
# As many tasks behind the heads of every other group are included.
MOST_BEHIND = 50
# The id of a task that is not stored; ids of stored ones are looked up.
_NEW = str(UUID(int=0))
LimitsByTask = Mapping[UUID, tuple[datetime | None, int | None]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# However much work ends, the task does not start before something is changed.
_NOT_CAPACITY = frozenset(
    {
        ReasonCode.DISABLED,
        ReasonCode.PAUSED,
        ReasonCode.BUDGET,
        ReasonCode.NO_POOL,
        ReasonCode.NO_SERVER,
        *INELIGIBLE_CODES,
    }
)
_BASES = {
    Basis.NOW: "The next pass starts it.",
    Basis.TIME_LIMIT: "Estimated from the time limits of the tasks before it.",
    Basis.QUEUE: "Estimated from {ended} earlier tasks of this queue.",
    Basis.ALL_QUEUES: "Estimated from {ended} earlier tasks of all queues.",
}
# How much of others' work ended is said within a tenant only.
_ALL = "Estimated from earlier tasks of all queues."
_OTHER_QUEUES = "Estimated from earlier tasks of the queues before it."
_UNKNOWN = {
    NoEstimateReason.NOTHING_KNOWN: (
        "No estimate: too few tasks have ended, and some have no time limit."
    ),
    NoEstimateReason.NOT_IN_SIGHT: "No start is in sight: see why it waits.",
}


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """An estimate, never a promise: four of five such tasks start between the two moments.

    `latest` None: not foreseeable. `basis` is a word for programs, `sentence` says the same to
    people. Where there is no estimate both moments are None, and the two say why.
    """

    basis: str
    sentence: str
    earliest: datetime | None = None
    latest: datetime | None = None
    is_estimate: bool = True

    @property
    def about(self) -> datetime | None:
        """The middle of the two moments; the first where the second is not foreseeable."""
        if self.earliest is None or self.latest is None:
            return self.earliest
        return self.earliest + (self.latest - self.earliest) / 2


def expected_start(task: Task) -> ExpectedStart | None:
    """When `task` will probably start, computed at most once a minute; None: it does not wait.

    An array itself never starts; its elements have estimates of their own.
    """
    if task.state != TaskState.QUEUED or task.task_group is None or task.array_count is not None:
        return None
    code = task.ineligible_code or task.task_group.reason_code
    if code in _NOT_CAPACITY or is_suspended():
        return _start_payload(NoEstimate(NoEstimateReason.NOT_IN_SIGHT))
    key = _key(task)
    kept: dict[str, Any] | None = cache.get(key)
    if kept is not None:
        return _unpacked(kept)
    known = _start_payload(_estimated(task))
    cache.set(key, _packed(known), KEPT_S)
    return known


def kept_starts(tasks: Iterable[Task]) -> dict[UUID, ExpectedStart]:
    """Those of these waiting tasks that are computed already, by task; computes none."""
    keys = {_key(task): task.pk for task in tasks if task.submitted_at is not None}
    return {keys[key]: _unpacked(kept) for key, kept in cache.get_many(keys).items()}


def _key(task: Task) -> str:
    return f"expected-start:{task.pk}:{task.generation}:{microseconds(task.submitted_at)}"


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
    loaded = load_with_queued_counts(now_us=microseconds(timezone.now()))
    limits_before = _limits_before(task)
    if task.task_group_id not in loaded.group_ids or task.pk not in limits_before:
        return NoEstimate(NoEstimateReason.NOT_IN_SIGHT)
    index = loaded.group_ids.index(task.task_group_id)
    snapshot = _with_limits(loaded.snapshot, index, limits_before)
    return _run_forward(snapshot, index, str(task.pk), _limits(limits_before))


def _run_forward(
    snapshot: Snapshot,
    index: int,
    task: Id,
    limits: Mapping[Id, int],
    behind: int | None = None,
) -> Estimate | NoEstimate | None:
    """The estimate for a task of the group at `index`; None where it would take too long.

    Args:
        limits: time limits that the database does not have, or that are read already.
        behind: the place in its group of a task behind the heads.
    """
    queued = snapshot.queued_groups[index]
    snapshot = _competing(snapshot, index)
    rows = len(snapshot.queued_groups) + len(snapshot.running) + len(snapshot.policies)
    if FUTURES * rows * FEWEST_PASSES > MOST_ROWS:
        return None
    run_times, arrivals = load_run_times(snapshot)
    limits = {**run_times.limits, **limits}
    at = snapshot.queued_groups.index(queued)
    return estimate(
        snapshot,
        task=task,
        run_times=replace(run_times, limits={**limits, **_limits_behind(snapshot, limits)}),
        arrivals=arrivals,
        behind=None if behind is None else (at, behind),
        most_rows=MOST_ROWS,
    )


def expected_start_of_new(
    snapshot: Snapshot, new: QueuedGroup, *, code: str, time_limit_s: int | None
) -> ExpectedStart:
    """When a task that is not stored would start, last among its equals in its queue.

    Args:
        snapshot: of now, with the counts of what waits.
        new: its group; only the first of the heads is taken.
        code: of the reason for which the next pass would not start it.
    """
    if code in _NOT_CAPACITY:
        return _start_payload(NoEstimate(NoEstimateReason.NOT_IN_SIGHT))
    key = GroupKey.of_queued(new)
    groups = [
        replace(group, count=min(group.count, len(group.heads) + MOST_BEHIND))
        for group in snapshot.queued_groups
    ]
    keys = [GroupKey.of_queued(group) for group in groups]
    behind = None
    if key in keys and snapshot.queued_groups[keys.index(key)].heads:
        # Equal tasks are one group: the new one is behind all of them.
        index = keys.index(key)
        behind = snapshot.queued_groups[index].count + 1
        groups[index] = replace(groups[index], count=behind)
    else:
        index = len(groups)
        head = replace(new.heads[0], task=_NEW)
        groups.append(replace(new, heads=(head,), count=1))
    limits: dict[Id, int] = {} if time_limit_s is None else {_NEW: time_limit_s * SECOND}
    changed = replace(snapshot, queued_groups=tuple(groups))
    return _start_payload(_run_forward(changed, index, _NEW, limits, behind))


def _limits_before(task: Task) -> LimitsByTask:
    """Its equals in order up to itself, with time of submission and limit in seconds."""
    equals = Task.objects.filter(ELIGIBLE, task_group=task.task_group_id)
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


def _with_limits(snapshot: Snapshot, index: int, limits_before: LimitsByTask) -> Snapshot:
    """All before it in its group; of the other groups some behind the heads."""
    heads = tuple(QueuedTask(microseconds(at), str(pk)) for pk, (at, _) in limits_before.items())
    queued_groups = [
        replace(group, count=min(group.count, len(group.heads) + MOST_BEHIND))
        for group in snapshot.queued_groups
    ]
    queued_groups[index] = replace(queued_groups[index], heads=heads, count=len(heads))
    return replace(snapshot, queued_groups=tuple(queued_groups))


def _competing(snapshot: Snapshot, index: int) -> Snapshot:
    """With only the queues that share a pool with the queue of the group at `index`.

    What waits for other pools could matter through common limits and reservations; the width of
    the interval covers that.
    """
    profiles = {queue.id: queue.profile for queue in snapshot.queues}
    pools = {profile.id: set(profile.pools) for profile in snapshot.profiles}
    wanted = pools[profiles[snapshot.queued_groups[index].queue]]
    queues = tuple(queue for queue in snapshot.queues if pools[queue.profile] & wanted)
    kept = {queue.id for queue in queues}
    queued_groups = tuple(group for group in snapshot.queued_groups if group.queue in kept)
    return replace(snapshot, queues=queues, queued_groups=queued_groups)


def _limits(limits_before: LimitsByTask) -> dict[Id, int]:
    return {
        str(pk): limit_s * SECOND
        for pk, (_, limit_s) in limits_before.items()
        if limit_s is not None
    }


def _limits_behind(snapshot: Snapshot, limits: Mapping[Id, int]) -> dict[Id, int]:
    """Tasks behind the heads of a group are taken to be like the last of them."""
    return {
        stand_in(index, group.heads[-1], number).task: limits[group.heads[-1].task]
        for index, group in enumerate(snapshot.queued_groups)
        if group.heads and group.heads[-1].task in limits
        for number in range(1, group.count - len(group.heads) + 1)
    }


def _start_payload(found: Estimate | NoEstimate | None) -> ExpectedStart:
    if found is None:
        return ExpectedStart("too_large", "No estimate: too many tasks are queued or running.")
    if isinstance(found, NoEstimate):
        return ExpectedStart(found.reason.value, _UNKNOWN[found.reason])
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
