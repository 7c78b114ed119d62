"""Which decisions of a plan still apply, now that their rows are locked.

A decision about what changed since the snapshot is left out, and with it all that depends on it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from apps.allocation.engine.model.plan import Move, Placement, Plan, Preempt
from apps.allocation.engine.model.snapshot import Id, Snapshot
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES, AttemptState
from apps.tasks.models import Attempt


@dataclass(frozen=True, slots=True)
class StoppingTasks:
    """The tasks that a plan stops: their live attempts, and those that cannot be locked.

    `attempts` are locked with their tasks; a task of the plan in neither of the two has ended by
    itself, and its capacity is free. `busy` ones are locked by another transaction.
    """

    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    busy: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan) -> "StoppingTasks":
        """Lock them without waiting; the next pass decides about tasks locked elsewhere."""
        wanted = [UUID(str(one.task)) for one in _decisions(plan)]
        if not wanted:
            return cls()
        live = Attempt.objects.filter(task__in=wanted, state__in=LIVE_ATTEMPT_STATES)
        locked = {
            str(attempt.task_id): attempt
            for attempt in live.select_related("task", "queue")
            .select_for_update(skip_locked=True, no_key=True, of=("self", "task"))
            .order_by("pk")
        }
        missing = live.exclude(task__in=list(locked)).values_list("task_id", "policy_id")
        return cls(locked, {str(task): policy for task, policy in missing})


def applicable_placements(
    plan: Plan, ready: Collection[str], stopping: StoppingTasks, snapshot: Snapshot
) -> list[Placement]:
    """The placements that can be carried out.

    A victim is only asked to stop for a beneficiary that is really placed. Where one goes on, the
    tasks placed on its capacity and those of the same department wait: what it holds may be what
    their limit, or their tier, was short of.

    Args:
        ready: the tasks that still wait as the snapshot has them.
    """
    tops = _tops(snapshot)
    placements = {str(one.task): one for one in plan.placed if str(one.task) in ready}
    policies = _policies(snapshot)
    while True:
        still_running = _still_running(plan, placements, stopping)
        closed = {tops[policy] for policy in still_running.values()}
        left = {
            task: placement
            for task, placement in placements.items()
            if still_running.keys().isdisjoint(map(str, placement.waits_for))
            and tops[policies[placement.queue]] not in closed
        }
        if len(left) == len(placements):
            return list(placements.values())
        placements = left


def _still_running(
    plan: Plan, placements: Collection[str], stopping: StoppingTasks
) -> dict[str, Id]:
    """Tasks of the plan that go on running, each with its policy."""
    still_running: dict[str, Id] = dict(stopping.busy)
    for one in _decisions(plan):
        attempt = stopping.attempts.get(str(one.task))
        if attempt is None or attempt.state == AttemptState.STOPPING:
            continue
        if str(one.beneficiary) not in placements:
            still_running[str(one.task)] = attempt.policy_id
    return still_running


def _decisions(plan: Plan) -> tuple[Preempt | Move, ...]:
    return (*plan.preempted, *plan.moved)


def _policies(snapshot: Snapshot) -> dict[Id, Id]:
    return {queue.id: queue.policy for queue in snapshot.queues}


def _tops(snapshot: Snapshot) -> dict[Id, Id]:
    """The top of the tree above each policy."""
    parents = {policy.id: policy.parent for policy in snapshot.policies}
    tops: dict[Id, Id] = {}
    for policy in parents:
        top = policy
        while (parent := parents[top]) is not None:
            top = parent
        tops[policy] = top
    return tops
