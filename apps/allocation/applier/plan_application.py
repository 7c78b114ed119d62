"""Carrying out a plan: tasks get their placements, victims are asked to stop."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from apps.allocation.applier.admissions import (
    Admission,
    admit,
    attempts_create,
    ledger_write,
    ready_tasks,
)
from apps.allocation.applier.applicable_placements import StoppingTasks, applicable_placements
from apps.allocation.applier.preemptions import PreemptedAttempt, attempts_preempt
from apps.allocation.engine.model.plan import Move, Placement, Plan, Preempt
from apps.allocation.engine.model.snapshot import MemberPlacement, Snapshot
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES, AttemptState
from apps.tasks.models import Attempt


@dataclass(frozen=True, slots=True)
class AppliedPlan:
    """What was carried out, and how many placements were skipped because something had changed."""

    placed: tuple[Placement, ...] = ()
    preempted: tuple[Preempt, ...] = ()
    moved: tuple[Move, ...] = ()
    skipped: int = 0


def apply_plan(
    plan: Plan, *, snapshot: Snapshot, group_ids: Sequence[int], now: datetime
) -> AppliedPlan:
    """Admit, and stop victims for what was admitted, in a fixed number of statements.

    Runs inside the transaction of the pass: both are written, or neither.

    Args:
        group_ids: ids of the group rows in the order of the snapshot's `queued_groups`.
    """
    if not plan.placed:
        return AppliedPlan()
    ready = ready_tasks(plan.placed, snapshot=snapshot, group_ids=group_ids)
    stopping = StoppingTasks.of(plan)
    placements = applicable_placements(plan, ready.generations.keys(), stopping, snapshot)
    admissions = attempts_create(placements, ready, now=now)
    beneficiaries = {str(one.attempt.task_id): one.attempt.pk for one in admissions}
    moved = [one for one in plan.moved if _is_still_due(one, beneficiaries, stopping)]
    preempted = [one for one in plan.preempted if _is_still_due(one, beneficiaries, stopping)]
    attempts_preempt(_victims(preempted, moved, beneficiaries, stopping), now=now)
    blocked = _block(admissions, stopping)
    ledger_write(admissions, ready, blocked=blocked)
    admit(admissions, blocked=blocked, now=now)
    return AppliedPlan(
        placed=tuple(one.placement for one in admissions),
        preempted=tuple(preempted),
        moved=tuple(moved),
        skipped=len(plan.placed) - len(admissions),
    )


def _is_still_due(
    one: Preempt | Move, beneficiaries: Mapping[str, UUID], stopping: StoppingTasks
) -> bool:
    """Whether it still runs, and its beneficiary was placed."""
    return str(one.task) in stopping.attempts and str(one.beneficiary) in beneficiaries


def _victims(
    preempted: Iterable[Preempt],
    moved: Iterable[Move],
    beneficiaries: Mapping[str, UUID],
    stopping: StoppingTasks,
) -> list[PreemptedAttempt]:
    victims = [
        PreemptedAttempt(stopping.attempts[str(one.task)], beneficiaries[str(one.beneficiary)])
        for one in preempted
    ]
    return victims + [
        PreemptedAttempt(
            stopping.attempts[str(one.task)],
            beneficiaries[str(one.beneficiary)],
            placement=[_member_data(member) for member in one.members],
        )
        for one in moved
    ]


def _member_data(member: MemberPlacement) -> list[object]:
    return [int(member.node), [[share.index, share.milli] for share in member.devices]]


def _block(admissions: Sequence[Admission], stopping: StoppingTasks) -> dict[UUID, set[UUID]]:
    """Store for which attempts each admission waits, where it waits.

    Those are its victims, the attempts that its victims waited for themselves, and moved work that
    has not yet left the nodes, since that is charged at its new placement.
    """
    gone_first = _blockers_of([attempt.pk for attempt in stopping.attempts.values()])
    moving = _moving_attempts(admissions)
    found: dict[UUID, set[UUID]] = {}
    for one in admissions:
        waits_for = {
            stopping.attempts[str(task)].pk
            for task in one.placement.waits_for
            if str(task) in stopping.attempts
        }
        further = {pk for victim in waits_for for pk in gone_first[victim]}
        on_nodes = {pk for member in one.placement.members for pk in moving[int(member.node)]}
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


def _moving_attempts(admissions: Sequence[Admission]) -> dict[int, set[UUID]]:
    """By node, moved attempts that still run there."""
    nodes = {int(member.node) for one in admissions for member in one.placement.members}
    rows = Attempt.objects.filter(
        state=AttemptState.STOPPING,
        moves_to__isnull=False,
        members__node__in=nodes,
        members__released_at__isnull=True,
    )
    found: dict[int, set[UUID]] = defaultdict(set)
    for attempt, node in rows.values_list("pk", "members__node"):
        if node in nodes:
            found[node].add(attempt)
    return found
