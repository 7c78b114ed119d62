"""Work that holds capacity, grouped as the engine takes it."""

from collections import defaultdict
from operator import itemgetter
from typing import Any, NamedTuple

from django.db.models import F

from apps.allocation.engine.model.quantities import Quantities
from apps.allocation.engine.model.snapshot import (
    DeviceShare,
    Id,
    MemberPlacement,
    RunningGroup,
    RunningTask,
)
from apps.allocation.loader.configuration import Configuration
from apps.allocation.loader.row_cache import RowCache
from apps.allocation.loader.texts import as_text, id_text, json_of, moment_us, thousandths
from apps.tasks.lifecycle.states import LIVE_ATTEMPT_STATES, AttemptState
from apps.tasks.models import Attempt, Member

# Of one member that is on a node: the node, and its devices as text.
_MemberRow = tuple[int, str]

# What is read of one attempt: its columns, and the placements of its members.
_Read = tuple[tuple[Any, ...], tuple[_MemberRow, ...] | None]


class _Row(NamedTuple):
    """One live attempt as it is read; moments, ids and JSON as text."""

    pk: str
    task: str
    pool: int
    policy: int
    queue: int
    profile: int
    request: str
    replicas: int
    state: str
    allocated_at: str
    started_at: str | None
    checkpointed_at: str | None
    moves_to: str | None
    beneficiary: str | None
    beneficiary_state: str | None
    priority: int
    is_preemptible: bool
    submitted_at: str
    preemptions: int
    is_restartable: bool
    owner: int
    exceeds_limit: bool | None


class _Group(NamedTuple):
    """What equal work has in common, without its owner."""

    pool: int
    policy: int
    profile: int
    # Of quantities, which would take long to hash.
    request: tuple[tuple[str, int], ...]
    queue: int
    replicas: int
    priority: int
    is_preemptible: bool
    exceeds_limit: bool
    is_stopping: bool


_COLUMNS = (
    as_text("id"),
    as_text("task_id"),
    F("pool_id"),
    F("policy_id"),
    F("queue_id"),
    F("queue__profile_id"),
    as_text("request"),
    F("replicas"),
    F("state"),
    as_text("allocated_at"),
    as_text("started_at"),
    as_text("checkpointed_at"),
    as_text("moves_to"),
    as_text("stops_for__task_id"),
    F("stops_for__state"),
    F("task__priority"),
    F("task__is_preemptible"),
    as_text("task__submitted_at"),
    F("task__preemptions"),
    F("task__is_restartable"),
    F("task__owner_id"),
    F("task__task_group__exceeds_limit"),
)


def load_running(configuration: Configuration) -> tuple[RunningGroup, ...]:
    """Every live attempt, in groups of equal ones. Two queries.

    Attempts are read first: a moved task begins its next one at any time, and what is read here
    must have its members.
    """
    by_person = _limited_by_person(configuration)
    attempts = Attempt.objects.filter(state__in=LIVE_ATTEMPT_STATES).order_by()
    # Ordered here: the server would sort so much text on disk.
    rows = sorted(attempts.values_list(*_COLUMNS), key=itemgetter(0))
    members = _members()
    groups: dict[tuple[_Group, Id | None], list[RunningTask]] = defaultdict(list)
    for group, owner, running_task in _attempts.of(
        (row[0], (row, members.get(row[0]))) for row in rows
    ):
        groups[group, owner if group.policy in by_person else None].append(running_task)
    return tuple(_running(group, user, tasks) for (group, user), tasks in groups.items())


def _running(group: _Group, user: Id | None, tasks: list[RunningTask]) -> RunningGroup:
    return RunningGroup(
        pool=group.pool,
        policy=group.policy,
        profile=group.profile,
        request=Quantities(group.request),
        tasks=tuple(tasks),
        queue=group.queue,
        replicas=group.replicas,
        priority=group.priority,
        is_preemptible=group.is_preemptible,
        user=user,
        can_exceed_limit=group.exceeds_limit,
        is_stopping=group.is_stopping,
    )


def _attempt(read: _Read) -> tuple[_Group, Id, RunningTask]:
    """The group of an attempt, its owner, and what the engine needs of it."""
    row, members = _Row._make(read[0]), read[1] or ()
    is_stopping = row.state == AttemptState.STOPPING
    moves_to = json_of(row.moves_to)
    beneficiary = _beneficiary(row, is_moved=bool(moves_to))
    running_task = RunningTask(
        task=id_text(row.task),
        submitted_us=moment_us(row.submitted_at),
        started_us=moment_us(row.started_at or row.allocated_at),
        members=_members_of(moves_to or [(node, json_of(devices)) for node, devices in members]),
        checkpointed_us=None if row.checkpointed_at is None else moment_us(row.checkpointed_at),
        preemptions=row.preemptions,
        stops_for=beneficiary,
        is_leaving=is_stopping and beneficiary is None and not moves_to,
        is_movable=row.is_restartable,
    )
    group = _Group(
        pool=row.pool,
        policy=row.policy,
        profile=row.profile,
        request=thousandths(row.request).pairs,
        queue=row.queue,
        replicas=row.replicas,
        priority=row.priority,
        is_preemptible=row.is_preemptible,
        exceeds_limit=bool(row.exceeds_limit),
        is_stopping=is_stopping,
    )
    return group, row.owner, running_task


# By the id of the attempt; most of them stay as they are from one pass to the next.
_attempts: RowCache[str, _Read, tuple[_Group, Id, RunningTask]] = RowCache(_attempt)


def _limited_by_person(configuration: Configuration) -> set[Id]:
    """Policies under a limit per person; it counts what ran before it was set, too."""
    policies = {policy.id: policy for policy in configuration.policies}
    found: set[Id] = set()
    for policy in configuration.policies:
        at: Id | None = policy.id
        while at is not None:
            if policies[at].user_limit:
                found.add(policy.id)
            at = policies[at].parent
    return found


def _members() -> dict[str, tuple[_MemberRow, ...]]:
    """By the id of the attempt, the placements of its members in order of their ranks."""
    found: dict[str, tuple[_MemberRow, ...]] = {}
    rows = Member.objects.filter(released_at__isnull=True, node__isnull=False)
    for attempt, node, devices in rows.order_by("rank").values_list(
        as_text("attempt_id"), "node_id", as_text("devices")
    ):
        found[attempt] = (*found.get(attempt, ()), (node, devices))
    return found


def _members_of(members: Any) -> tuple[MemberPlacement, ...]:
    """Of a moved task the placements that are kept for it: it is charged there, and the old ones
    are given to others.
    """
    return tuple(
        MemberPlacement(
            node=node,
            devices=tuple(DeviceShare(index=index, milli=milli) for index, milli in devices),
        )
        for node, devices in members
    )


def _beneficiary(row: _Row, *, is_moved: bool) -> str | None:
    """The task that gets the capacity of this one; a moved one is charged like any other."""
    if is_moved or row.beneficiary is None or row.beneficiary_state not in LIVE_ATTEMPT_STATES:
        return None
    return id_text(row.beneficiary)
