"""What a user could start right now: a simulated pass per queue, with many tasks at its end."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.utils import timezone

from apps.accounts.models import User
from apps.allocation.engine import Engine
from apps.allocation.engine.model.plan import Plan
from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.reasons import Reason, ReasonCode, to_data
from apps.allocation.engine.model.snapshot import PolicySnapshot as PolicyEntry
from apps.allocation.engine.model.snapshot import QueuedGroup, QueuedTask, Snapshot
from apps.allocation.explanation import (
    SUSPENDED,
    ReaderNames,
    ReasonPayload,
    reason_payload,
)
from apps.allocation.explanation.sentences import amount_words
from apps.allocation.loader import load
from apps.allocation.loader.configuration import amounts
from apps.allocation.loader.texts import microseconds
from apps.nodes.selectors import is_suspended
from apps.policies.models import Queue
from apps.policies.selectors import may_exceed_limit
from apps.tasks.shapes import TaskShape

# More than this need no exact count.
MOST_TASKS = 64
# Thousandths of every key: so much capacity that only limits bind.
ENDLESS = 10**12


@dataclass(frozen=True, slots=True)
class StartCount:
    """How many more tasks of a queue one user could start.

    `count` start at once, `after` more once others have stopped for them. `reason` says why the
    next one waits; None where as many as were tried would start. `allowed` is how many the limits
    allow, whatever is free, and `limit` which of them comes next; empty where none does.
    """

    queue: Queue
    count: int
    after: int
    reason: ReasonPayload | None
    allowed: int
    limit: str

    @property
    def is_more(self) -> bool:
        """As many as were tried would start: more may fit."""
        return self.reason is None


def start_counts(*, actor: User, queues: Sequence[Queue]) -> tuple[StartCount, ...]:
    """How many tasks the next pass would start for `actor`, in each queue for itself.

    Each queue is tried alone, behind everything that waits there already, with the default request
    and settings of a task. Nothing is stored.
    """
    snapshot = load(now_us=microseconds(timezone.now())).snapshot
    trial = Trial(snapshot)
    with_capacity = Trial(_with_endless_capacity(snapshot))
    names = ReaderNames.of(actor)
    queued_groups = ((queue, new_group(snapshot, queue, actor)) for queue in queues)
    found = tuple(
        _tried(queue, queued, trial=trial, with_capacity=with_capacity, names=names)
        for queue, queued in queued_groups
        if queued is not None
    )
    if is_suspended():
        return tuple(replace(one, count=0, after=0, reason=SUSPENDED) for one in found)
    return found


class Trial:
    """A snapshot to which one more group after another is added for a try."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._engine = Engine()

    def decide(self, queued: QueuedGroup) -> Plan:
        snapshot = self.snapshot
        return self._engine.decide(
            replace(snapshot, queued_groups=(*snapshot.queued_groups, queued))
        )


def _tried(
    queue: Queue,
    queued: QueuedGroup,
    *,
    trial: Trial,
    with_capacity: Trial,
    names: ReaderNames,
) -> StartCount:
    snapshot = trial.snapshot
    plan = trial.decide(queued)
    tasks = {head.task for head in queued.heads}
    placed = [one for one in plan.placed if one.task in tasks]
    at_once = sum(not one.waits_for for one in placed)
    reason = reason_at(plan, len(snapshot.queued_groups))
    pools = next((one.pools for one in snapshot.profiles if one.id == queue.profile_id), ())
    own = replace(names, routing=tuple(int(pool) for pool in pools))
    by_limits = with_capacity.decide(queued)
    return StartCount(
        queue=queue,
        count=at_once,
        after=len(placed) - at_once,
        reason=reason_payload(to_data(reason), own, now=timezone.now())
        if reason is not None
        else None,
        allowed=len(by_limits.placed),
        limit=_limit_named(reason_at(by_limits, 0), own),
    )


def new_group(
    snapshot: Snapshot, queue: Queue, actor: User, shape: TaskShape | None = None
) -> QueuedGroup | None:
    """As many equal tasks of `actor`, last in the queue; None where it was closed just now.

    Args:
        shape: of the tasks; None: the default request and settings.
    """
    entry = next((one for one in snapshot.queues if one.id == queue.pk), None)
    if entry is None:
        return None
    profile = next(one for one in snapshot.profiles if one.id == entry.profile)
    heads = tuple(
        QueuedTask(snapshot.now_us, f"{queue.pk}-{number:03d}") for number in range(MOST_TASKS)
    )
    if shape is None:
        above = _chain(snapshot, queue.policy_id)
        shape = TaskShape(
            user_id=actor.pk if any(one.user_limit.pairs for one in above) else None,
            exceeds_limit=actor.pk in may_exceed_limit(queue.policy_id),
        )
    return QueuedGroup(
        queue=entry.id,
        request=profile.request if shape.request is None else amounts(shape.request),
        count=len(heads),
        heads=heads,
        replicas=shape.replicas or profile.replicas,
        priority=shape.priority,
        is_preemptible=shape.is_preemptible,
        user=shape.user_id,
        can_exceed_limit=shape.exceeds_limit,
    )


def _chain(snapshot: Snapshot, policy_id: int) -> list[PolicyEntry]:
    """The policy and all above it."""
    by_id = {one.id: one for one in snapshot.policies}
    chain = []
    at = by_id.get(policy_id)
    while at is not None:
        chain.append(at)
        at = by_id.get(at.parent) if at.parent is not None else None
    return chain


def reason_at(plan: Plan, index: int) -> Reason | None:
    """Why the waiting tasks of the group at `index` wait; None where none waits."""
    wait = next((one for one in plan.waiting if one.index == index), None)
    return wait.reasons[0] if wait is not None else None


def _limit_named(reason: Reason | None, names: ReaderNames) -> str:
    """The limit that blocks the next task; empty where it is something else."""
    if reason is None or not reason.details:
        return ""
    detail = reason.details[0]
    amount = amount_words(detail.key, detail.limit)
    if reason.code is ReasonCode.OVER_QUOTA_NOT_ALLOWED:
        return f"the reservation of {amount} of {names.policy(detail.policy)}"
    if reason.code is not ReasonCode.LIMIT:
        return ""
    if detail.user is not None:
        return f"the limit of {amount} per person"
    return f"the limit of {amount} of {names.policy(detail.policy)}"


def _with_endless_capacity(snapshot: Snapshot) -> Snapshot:
    """The same with endless capacity of everything, and no other waiting work."""
    keys = {key for one in snapshot.profiles for key in one.request}
    keys |= {key for one in snapshot.pools for key in one.capacity}
    capacity = Quantities.of(dict.fromkeys(keys, ENDLESS))
    return replace(
        snapshot,
        queued_groups=(),
        pools=tuple(
            replace(one, capacity=capacity, nodes=(), has_server=True, is_paused=False)
            for one in snapshot.pools
        ),
        profiles=tuple(replace(one, models=()) for one in snapshot.profiles),
        # Without nodes, the placement of members means nothing.
        running=tuple(
            replace(
                group,
                tasks=tuple(replace(running_task, members=()) for running_task in group.tasks),
            )
            for group in snapshot.running
        ),
    )
