"""Which decisions of a plan still stand, now that the rows they are about are locked.

What changed since the snapshot is left out, and with it whatever rested on it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from apps.allocation.engine.plan import Move, Place, Plan, Preempt
from apps.allocation.engine.snapshot import Id, Snapshot
from apps.tasks.models import Attempt
from apps.tasks.states import LIVE_ATTEMPT_STATES, AttemptState


@dataclass(frozen=True, slots=True)
class Leaving:
    """The tasks that a plan stops: their live attempts, and those that cannot be had.

    `attempts` are locked with their tasks; a task of the plan in neither of the two has ended by
    itself, and its room is free. `busy` ones are being changed by somebody else right now.
    """

    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    busy: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan) -> "Leaving":
        """Lock them. One that somebody else holds is left to the next pass: nobody waits here."""
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


def places_that_stand(
    plan: Plan, ready: Collection[str], leaving: Leaving, snapshot: Snapshot
) -> list[Place]:
    """The places that can be carried out.

    A victim is only asked to stop for a beneficiary that is really placed. Where one stays, so do
    those who were given its room, and those of the same department: what it holds may be what
    their limit, or their standing, was short of.

    Args:
        ready: the tasks that still wait as the snapshot saw them.
    """
    tops = _tops(snapshot)
    places = {str(one.task): one for one in plan.placed if str(one.task) in ready}
    policies = _policies(snapshot)
    while True:
        staying = _staying(plan, places, leaving)
        closed = {tops[policy] for policy in staying.values()}
        left = {
            task: place
            for task, place in places.items()
            if staying.keys().isdisjoint(map(str, place.waits_for))
            and tops[policies[place.queue]] not in closed
        }
        if len(left) == len(places):
            return list(places.values())
        places = left


def _staying(plan: Plan, places: Collection[str], leaving: Leaving) -> dict[str, Id]:
    """Tasks of the plan that go on running, each with its policy."""
    staying: dict[str, Id] = dict(leaving.busy)
    for one in _decisions(plan):
        attempt = leaving.attempts.get(str(one.task))
        if attempt is None or attempt.state == AttemptState.STOPPING:
            continue
        if str(one.beneficiary) not in places:
            staying[str(one.task)] = attempt.policy_id
    return staying


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
