"""Where a new task would start first: one pass per queue, and an estimate where it would wait."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from uuid import UUID

from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.engine.model.reasons import Reason, to_data
from apps.allocation.engine.model.snapshot import QueuedGroup, Snapshot
from apps.allocation.explanation import (
    SUSPENDED,
    ExpectedStart,
    ReaderNames,
    ReasonPayload,
    expected_start_of_new,
    reason_payload,
)
from apps.allocation.loader.queued_counts import load_with_queued_counts
from apps.allocation.loader.texts import microseconds
from apps.allocation.whatif.start_counts import MOST_TASKS, Trial, new_group, reason_at
from apps.core.errors import RpmError
from apps.nodes.selectors import is_suspended
from apps.policies.models import Queue
from apps.tasks.acceptance import NO_MOUNTS, accept
from apps.tasks.selectors.facts import cached_queue_facts
from apps.tasks.shapes import TaskShape
from apps.tasks.task_spec import TaskSpec

MOST_QUEUES = 12
# Once so much time is used, no further estimate begins.
MOST_S = 2.0
_CLOSED = "It was closed just now."


@dataclass(frozen=True, slots=True)
class QueueStart:
    """What the next pass would do with one more task of one user in this queue.

    `count` such tasks would start, `after` of them once others have stopped; MOST_TASKS stands for
    more. Where none would, `reason` says why not, and `expected` when it probably starts; None
    where that was not computed. `problem` says why the queue does not take the task at all.
    """

    queue: Queue
    count: int = 0
    after: int = 0
    reason: ReasonPayload | None = None
    expected: ExpectedStart | None = None
    problem: str = ""

    @property
    def starts_now(self) -> bool:
        return self.count > self.after

    @property
    def is_more(self) -> bool:
        """As many as were tried would start: more may."""
        return self.count == MOST_TASKS


@dataclass(frozen=True, slots=True)
class _Tried:
    queue: Queue
    group: QueuedGroup
    count: int
    after: int
    reason: Reason | None


def queue_starts(*, actor: User, queues: Sequence[Queue], spec: TaskSpec) -> tuple[QueueStart, ...]:
    """What would become of a task in each of the first `MOST_QUEUES` queues; nothing is stored.

    Args:
        queues: open to `actor`, with policy and profile.
        spec: of its amounts and how it may run; with a command, without volumes.
    """
    return task_starts(actor=actor, wanted=[(queue, spec) for queue in queues])


def task_starts(
    *, actor: User, wanted: Sequence[tuple[Queue, TaskSpec]], without: UUID | None = None
) -> tuple[QueueStart, ...]:
    """As `queue_starts`, of one task per queue and spec, each alone.

    Args:
        actor: the owner of the tasks.
        without: a waiting task that is left out, because these would stand in its place.
    """
    wanted = wanted[:MOST_QUEUES]
    shapes: dict[int, TaskShape] = {}
    problems: dict[int, str] = {}
    for index, (queue, spec) in enumerate(wanted):
        try:
            facts = replace(cached_queue_facts(queue), needs_image=False)
            shapes[index] = accept(spec, facts, owner_id=actor.pk, mounts=NO_MOUNTS)
        except RpmError as error:
            problems[index] = error.detail
    if is_suspended():
        found = {one: QueueStart(wanted[one][0], reason=SUSPENDED) for one in shapes}
    else:
        found = _starts(actor, wanted, shapes, without) if shapes else {}
    return tuple(
        found.get(index) or QueueStart(queue, problem=problems.get(index, _CLOSED))
        for index, (queue, _) in enumerate(wanted)
    )


def _starts(
    actor: User,
    wanted: Sequence[tuple[Queue, TaskSpec]],
    shapes: Mapping[int, TaskShape],
    without: UUID | None,
) -> dict[int, QueueStart]:
    now, until = timezone.now(), monotonic() + MOST_S
    snapshot = _without(load_with_queued_counts(now_us=microseconds(now)).snapshot, str(without))
    trial = Trial(snapshot)
    tried = {}
    for index, shape in shapes.items():
        group = new_group(snapshot, wanted[index][0], actor, shape)
        if group is not None:
            tried[index] = _tried(trial, wanted[index][0], group)
    reasons = [to_data(one.reason) for one in tried.values() if one.reason is not None]
    names = ReaderNames.of(actor, None, reasons)
    found = {}
    for index, one in tried.items():
        reason = expected = None
        if not one.count and one.reason is not None:
            own = replace(names, routing=_routing(snapshot, one.queue))
            reason = reason_payload(to_data(one.reason), own, now=now)
            if monotonic() < until:
                limit_s = wanted[index][1].time_limit_s
                expected = expected_start_of_new(
                    snapshot, one.group, code=reason.code, time_limit_s=limit_s
                )
        found[index] = QueueStart(one.queue, one.count, one.after, reason, expected)
    return found


def _tried(trial: Trial, queue: Queue, group: QueuedGroup) -> _Tried:
    plan = trial.decide(group)
    tasks = {head.task for head in group.heads}
    placed = [one for one in plan.placed if one.task in tasks]
    after = sum(bool(one.waits_for) for one in placed)
    reason = reason_at(plan, len(trial.snapshot.queued_groups))
    return _Tried(queue, group, len(placed), after, reason)


def _without(snapshot: Snapshot, task: str) -> Snapshot:
    """The snapshot without this task, where it is one of the heads: others change nothing."""
    groups = []
    for group in snapshot.queued_groups:
        heads = tuple(head for head in group.heads if head.task != task)
        left = group.count - len(group.heads) + len(heads)
        if heads:
            groups.append(replace(group, heads=heads, count=left))
    return replace(snapshot, queued_groups=tuple(groups))


def _routing(snapshot: Snapshot, queue: Queue) -> tuple[int, ...]:
    pools = next((one.pools for one in snapshot.profiles if one.id == queue.profile_id), ())
    return tuple(int(pool) for pool in pools)
