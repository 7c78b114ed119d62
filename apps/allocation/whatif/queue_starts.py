"""Where a new task would start first: one pass per queue, and an estimate where it would wait."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic

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
    is_suspended,
    reason_payload,
)
from apps.allocation.loader.queued_counts import load_with_queued_counts
from apps.allocation.loader.texts import microseconds
from apps.allocation.whatif.start_counts import MOST_TASKS, Trial, new_group, reason_at
from apps.core.errors import RpmError
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
    queues = queues[:MOST_QUEUES]
    shapes: dict[int, TaskShape] = {}
    problems: dict[int, str] = {}
    for queue in queues:
        try:
            facts = replace(cached_queue_facts(queue), needs_image=False)
            shapes[queue.pk] = accept(spec, facts, owner_id=actor.pk, mounts=NO_MOUNTS)
        except RpmError as error:
            problems[queue.pk] = error.detail
    found = _starts(actor, [one for one in queues if one.pk in shapes], shapes, spec.time_limit_s)
    return tuple(
        found.get(one.pk) or QueueStart(one, problem=problems.get(one.pk, _CLOSED))
        for one in queues
    )


def _starts(
    actor: User, queues: Sequence[Queue], shapes: Mapping[int, TaskShape], time_limit_s: int | None
) -> dict[int, QueueStart]:
    if is_suspended():
        return {one.pk: QueueStart(one, reason=SUSPENDED) for one in queues}
    if not queues:
        return {}
    now, until = timezone.now(), monotonic() + MOST_S
    snapshot = load_with_queued_counts(now_us=microseconds(now)).snapshot
    trial = Trial(snapshot)
    groups = ((one, new_group(snapshot, one, actor, shapes[one.pk])) for one in queues)
    tried = [_tried(trial, queue, group) for queue, group in groups if group is not None]
    reasons = [to_data(one.reason) for one in tried if one.reason is not None]
    names = ReaderNames.of(actor, None, reasons)
    found = {}
    for one in tried:
        reason = expected = None
        if not one.count and one.reason is not None:
            own = replace(names, routing=_routing(snapshot, one.queue))
            reason = reason_payload(to_data(one.reason), own, now=now)
            if monotonic() < until:
                expected = expected_start_of_new(
                    snapshot, one.group, code=reason.code, time_limit_s=time_limit_s
                )
        found[one.queue.pk] = QueueStart(one.queue, one.count, one.after, reason, expected)
    return found


def _tried(trial: Trial, queue: Queue, group: QueuedGroup) -> _Tried:
    plan = trial.decide(group)
    tasks = {head.task for head in group.heads}
    placed = [one for one in plan.placed if one.task in tasks]
    after = sum(bool(one.waits_for) for one in placed)
    reason = reason_at(plan, len(trial.snapshot.queued_groups))
    return _Tried(queue, group, len(placed), after, reason)


def _routing(snapshot: Snapshot, queue: Queue) -> tuple[int, ...]:
    pools = next((one.pools for one in snapshot.profiles if one.id == queue.profile_id), ())
    return tuple(int(pool) for pool in pools)
