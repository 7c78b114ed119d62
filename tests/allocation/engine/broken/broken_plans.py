"""Engines that spoil their plan at the end: each breaks one law."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from apps.allocation.engine.model.plan import Move, Placement, Plan, Preempt, Tier, Wait
from apps.allocation.engine.model.reasons import Reason, ReasonCode
from apps.allocation.engine.model.snapshot import Id, RunningGroup, RunningTask, Snapshot


def takes_one_more_to_be_sure(snapshot: Snapshot, plan: Plan) -> Plan:
    taken = {one.task for one in plan.preempted}
    for first in plan.preempted:
        for group in snapshot.running:
            for running_task in group.tasks:
                if _can_be_taken(group, first.pool) and running_task.task not in taken:
                    return _with_victim(
                        plan, Preempt(running_task.task, first.pool, first.beneficiary)
                    )
    return plan


def _can_be_taken(group: RunningGroup, pool: Id) -> bool:
    return group.pool == pool and group.is_preemptible and not group.is_stopping


def _with_victim(plan: Plan, victim: Preempt) -> Plan:
    placed = tuple(
        replace(one, waits_for=tuple(sorted((*one.waits_for, victim.task))))
        if one.task == victim.beneficiary
        else one
        for one in plan.placed
    )
    return replace(plan, placed=placed, preempted=(*plan.preempted, victim))


def stops_victims_for_nobody(snapshot: Snapshot, plan: Plan) -> Plan:
    takers = {one.beneficiary for one in plan.preempted}
    return unplaced(snapshot, plan, takers)


def names_the_wrong_beneficiary(snapshot: Snapshot, plan: Plan) -> Plan:
    others = [one.task for one in plan.placed if not one.waits_for]
    if not others:
        return plan
    preempted = tuple(replace(one, beneficiary=others[0]) for one in plan.preempted)
    return replace(plan, preempted=preempted)


def starts_one_task_a_pass(snapshot: Snapshot, plan: Plan) -> Plan:
    if plan.preempted or plan.moved:
        return plan
    return unplaced(snapshot, plan, {one.task for one in plan.placed[1:]})


def lets_whoever_waits_take_an_equal(snapshot: Snapshot, plan: Plan) -> Plan:
    """The first waiting task gets the place of an equal one that runs."""
    taken = {one.task for one in plan.preempted} | {one.task for one in plan.moved}
    for wait in plan.waiting:
        queued = snapshot.queued_groups[wait.index]
        for group in snapshot.running:
            is_equal = (group.request, group.replicas) == (queued.request, queued.replicas)
            if not is_equal or group.is_stopping or not wait.tasks or group.queue is None:
                continue
            for running_task in group.tasks:
                if running_task.task not in taken:
                    return _instead(plan, wait, group, running_task)
    return plan


def _instead(plan: Plan, wait: Wait, group: RunningGroup, running_task: RunningTask) -> Plan:
    task = wait.tasks[0]
    place = Placement(
        task,
        wait.queue,
        group.pool,
        Tier.OVER_QUOTA,
        running_task.members,
        waits_for=(running_task.task,),
    )
    left = replace(wait, tasks=wait.tasks[1:], count=wait.count - 1)
    return replace(
        plan,
        placed=(*plan.placed, place),
        preempted=(*plan.preempted, Preempt(running_task.task, group.pool, task)),
        waiting=tuple(left if one is wait else one for one in plan.waiting),
    )


def moves_somebody_every_time(snapshot: Snapshot, plan: Plan) -> Plan:
    for group in snapshot.running:
        for running_task in group.tasks:
            if running_task.members and not group.is_stopping:
                move = Move(running_task.task, group.pool, running_task.task, running_task.members)
                return replace(plan, moved=(*plan.moved, move))
    return plan


def unplaced(snapshot: Snapshot, plan: Plan, tasks: Iterable[Id]) -> Plan:
    """The plan where these wait after all."""
    gone = set(tasks)
    waiting = list(plan.waiting)
    for number, queued in enumerate(snapshot.queued_groups):
        back = tuple(head.task for head in queued.heads if head.task in gone)
        if back:
            reasons = (Reason(ReasonCode.BEHIND),)
            waiting.append(Wait(number, queued.queue, back, len(back), 1, reasons))
    placed = tuple(one for one in plan.placed if one.task not in gone)
    return replace(plan, placed=placed, waiting=tuple(waiting))
