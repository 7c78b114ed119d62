"""A plan carried out: who starts gets its place, who gives room is asked to stop."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from apps.allocation.applier.choosing import Leaving, places_that_stand
from apps.allocation.applier.placing import (
    Admission,
    admissions_record,
    admit,
    ledger_write,
    ready_tasks,
)
from apps.allocation.engine.plan import Move, Place, Plan, Preempt
from apps.allocation.engine.snapshot import Member, Snapshot
from apps.tasks.models import Attempt
from apps.tasks.services.preempting import Victim, attempts_preempt
from apps.tasks.states import LIVE_ATTEMPT_STATES, AttemptState


@dataclass(frozen=True, slots=True)
class Applied:
    """What was carried out, and how many places were skipped because something had changed."""

    placed: tuple[Place, ...] = ()
    preempted: tuple[Preempt, ...] = ()
    moved: tuple[Move, ...] = ()
    skipped: int = 0


def apply_plan(plan: Plan, *, snapshot: Snapshot, runs: Sequence[int], now: datetime) -> Applied:
    """Admit, and stop for those who were admitted; in a number of statements that does not grow.

    Runs inside the transaction of the pass: both are written, or neither.

    Args:
        runs: ids of the run rows in the order of the snapshot's `runs`.
    """
    if not plan.placed:
        return Applied()
    ready = ready_tasks(plan.placed, snapshot=snapshot, runs=runs)
    leaving = Leaving.of(plan)
    places = places_that_stand(plan, ready.generations.keys(), leaving, snapshot)
    admissions = admit(places, ready, now=now)
    takers = {str(one.attempt.task_id): one.attempt.pk for one in admissions}
    moved = [one for one in plan.moved if _is_taken(one, takers, leaving)]
    preempted = [one for one in plan.preempted if _is_taken(one, takers, leaving)]
    attempts_preempt(_victims(preempted, moved, takers, leaving), now=now)
    blocked = _block(admissions, leaving)
    ledger_write(admissions, ready, blocked=blocked)
    admissions_record(admissions, blocked=blocked)
    return Applied(
        placed=tuple(one.place for one in admissions),
        preempted=tuple(preempted),
        moved=tuple(moved),
        skipped=len(plan.placed) - len(admissions),
    )


def _is_taken(one: Preempt | Move, takers: Mapping[str, UUID], leaving: Leaving) -> bool:
    """It is still there, and somebody was placed for it; one that has ended has nothing to give."""
    return str(one.task) in leaving.attempts and str(one.beneficiary) in takers


def _victims(
    preempted: Iterable[Preempt],
    moved: Iterable[Move],
    takers: Mapping[str, UUID],
    leaving: Leaving,
) -> list[Victim]:
    victims = [
        Victim(leaving.attempts[str(one.task)], takers[str(one.beneficiary)]) for one in preempted
    ]
    return victims + [
        Victim(
            leaving.attempts[str(one.task)],
            takers[str(one.beneficiary)],
            seats=[_seat(member) for member in one.members],
        )
        for one in moved
    ]


def _seat(member: Member) -> list[object]:
    return [int(member.node), [[share.index, share.milli] for share in member.devices]]


def _block(admissions: Sequence[Admission], leaving: Leaving) -> dict[UUID, set[UUID]]:
    """Write down for whom each admission waits, where it waits.

    For those who leave its room; for whom these were waiting themselves; and for moved work that
    has not yet left the nodes, since that is charged where it goes to.
    """
    gone_first = _blockers_of([attempt.pk for attempt in leaving.attempts.values()])
    on_the_way = _on_the_way(admissions)
    found: dict[UUID, set[UUID]] = {}
    for one in admissions:
        waits_for = {
            leaving.attempts[str(task)].pk
            for task in one.place.waits_for
            if str(task) in leaving.attempts
        }
        further = {pk for victim in waits_for for pk in gone_first[victim]}
        on_nodes = {pk for member in one.place.members for pk in on_the_way[int(member.node)]}
        blockers = waits_for | further | on_nodes
        if blockers:
            found[one.attempt.pk] = blockers
    through = Attempt.blocked_by.through
    through.objects.bulk_create(
        through(from_attempt_id=attempt, to_attempt_id=blocker)
        for attempt, blockers in found.items()
        for blocker in sorted(blockers)
    )
    return found


def _blockers_of(attempts: Sequence[UUID]) -> dict[UUID, set[UUID]]:
    found: dict[UUID, set[UUID]] = defaultdict(set)
    if attempts:
        rows = Attempt.blocked_by.through.objects.filter(
            from_attempt__in=attempts, to_attempt__state__in=LIVE_ATTEMPT_STATES
        )
        for waiting, blocker in rows.values_list("from_attempt_id", "to_attempt_id"):
            found[waiting].add(blocker)
    return found


def _on_the_way(admissions: Sequence[Admission]) -> dict[int, set[UUID]]:
    """By node, moved attempts that still run there."""
    nodes = {int(member.node) for one in admissions for member in one.place.members}
    rows = Attempt.objects.filter(
        state=AttemptState.STOPPING,
        moves_to__isnull=False,
        holdings__node__in=nodes,
        holdings__released_at__isnull=True,
    )
    found: dict[int, set[UUID]] = defaultdict(set)
    for attempt, node in rows.values_list("pk", "holdings__node"):
        if node in nodes:
            found[node].add(attempt)
    return found
