"""Arrays: their elements are stored shortly before they may start, and they end with the last one.

An array itself is never started. A step stores at most as many elements as a pass can start, and
no more than the array's limit leaves; what was committed counts, so a step that is cut off or
repeated changes nothing. A step also completes the abort of an array that was cut off.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from uuid import UUID

import structlog
from django.db import DatabaseError, connection, transaction
from django.db.models import Count, F, Q
from django.utils import timezone

from apps.core.errors import Conflict
from apps.core.ids import uuid7
from apps.tasks.lifecycle.states import LIVE_STATES, TaskState
from apps.tasks.lifecycle.transitions import (
    ABORT_UNSTARTED,
    COMPLETE_ARRAY,
    ENQUEUE,
    FAIL_ARRAY,
    TaskTransition,
)
from apps.tasks.lifecycle.writers import TaskSubject, task_transition, transition_record
from apps.tasks.models import Task
from apps.tasks.selectors import eligibility
from apps.tasks.selectors.arrays import elements_by_state
from apps.tasks.services.queues import queue_share
from apps.tasks.services.stop import elements_abort
from apps.tasks.task_spec import COLUMNS

log = structlog.get_logger(__name__)

# Waiting elements of one task group: no pass starts more of them.
WAITING = 1000
# Elements that one step stores, and seconds that it takes: the pass waits for it.
STORED_AT_ONCE = 2000
STEP_S = 2.0
# Waiting elements of one user: without it, those of many arrays delay the passes of everybody.
MOST_OF_OWNER = 5000
# Running elements of one aborted array that a step asks to stop.
STOPPED_AT_ONCE = 100
_ABORTABLE = (*ABORT_UNSTARTED.sources, TaskState.ALLOCATED, TaskState.RUNNING)
_OPEN = Task.objects.filter(state=TaskState.QUEUED, array_count__isnull=False)
_COPIED = (
    *("owner_id", "queue_id", "task_group_id", "content", "secrets", "is_by_owner"),
    *("submitted_at", "waiting_since"),
    *COLUMNS,
)


@dataclass(frozen=True, slots=True)
class LiveElements:
    """The elements of an array that have not ended, those that wait, and those that may start."""

    count: int = 0
    queued: int = 0
    eligible: int = 0
    owner_id: int = 0
    is_array_aborted: bool = False


NOTHING_LIVE = LiveElements()


def arrays_advance() -> None:
    """Store the elements of arrays that may start soon, and end arrays without any left.

    Each array in a transaction of its own: one that fails stops neither the others nor the pass.
    What is too much for one step is left to the next.
    """
    left, until = STORED_AT_ONCE, monotonic() + STEP_S
    try:
        live = _live_by_array(Q(array__isnull=False))
        _aborts_complete(live, until)
        for pk, most in _arrays_to_advance(live):
            if monotonic() >= until:
                break
            if not most or left:
                left -= _advance_or_log(pk, min(most, left))
    except DatabaseError as error:
        log.warning("arrays.failed", detail=str(error).strip())


def _aborts_complete(live: Mapping[UUID, LiveElements], until: float) -> None:
    """End the elements of aborted arrays that are still in the queue of their array.

    The request that aborted the array was cut off, or could not reach all of them.
    """
    elements = Task.objects.filter(state__in=_ABORTABLE, array__state=TaskState.ABORTED)
    elements = elements.filter(
        Q(queue=F("array__queue")) | Q(queue__isnull=True, array__queue__isnull=True)
    )
    ended = [pk for pk, one in live.items() if one.is_array_aborted]
    if not ended:
        return
    found = elements.filter(array__in=ended).order_by().values_list("array", "array__state_detail")
    for pk, reason in found.distinct():
        if monotonic() >= until:
            return
        try:
            elements_abort(elements.filter(array=pk), reason=reason, most=STOPPED_AT_ONCE)
        except (DatabaseError, Conflict) as error:
            log.warning("array.failed", array=str(pk), detail=str(error).strip())


def _advance_or_log(pk: UUID, most: int) -> int:
    try:
        return array_advance(pk, most=most)
    except DatabaseError as error:
        log.warning("array.failed", array=str(pk), detail=str(error).strip())
        return 0


@transaction.atomic
def array_advance(pk: UUID, *, most: int = WAITING) -> int:
    """Do what this array needs now; nothing where another process or request has it locked.

    Args:
        most: elements to store.

    Returns:
        How many were stored.
    """
    array = _locked(pk)
    if array is None:
        return 0
    live = _live_by_array(Q(array=pk)).get(pk, NOTHING_LIVE)
    count = min(_storable(array, live), most)
    if count > 0:
        _store(array, count)
    elif not live.count and array.array_next == array.array_count:
        _end(array)
    return max(count, 0)


def _locked(pk: UUID) -> Task | None:
    """The array, and its queue before it, which is not closed while elements are stored."""
    arrays = Task.objects.filter(pk=pk, state=TaskState.QUEUED, array_count__isnull=False)
    queue_id = arrays.values_list("queue", flat=True).first()
    if queue_id is None or queue_share(queue_id) is None:
        return None
    rows = arrays.filter(queue=queue_id).select_related("queue")
    if connection.features.has_select_for_update_skip_locked:
        # On SQLite the transaction itself excludes other writers.
        rows = rows.select_for_update(no_key=True, skip_locked=True, of=("self",))
    return rows.first()


def _arrays_to_advance(live_by_array: Mapping[UUID, LiveElements]) -> list[tuple[UUID, int]]:
    """Arrays that may store elements or end, and how many they may store. One query.

    Arrays of one task group share what may wait of it, those further ahead first, and so do those
    of one owner. Owners take turns, so that the many arrays of one do not delay those of others.
    """
    columns = ("array_count", "array_limit", "array_next", "ineligible_code")
    rows = _OPEN.only(*columns, "task_group_id", "owner_id").order_by("submitted_at", "pk")
    of_group: Counter[int | None] = Counter()
    of_owner: Counter[int] = Counter()
    for live in live_by_array.values():
        of_owner[live.owner_id] += live.queued
    turns: Counter[int] = Counter()
    found = []
    for one in rows:
        live = live_by_array.get(one.pk, NOTHING_LIVE)
        of_group[one.task_group_id] += live.eligible
        most = min(
            _storable(one, live),
            WAITING - of_group[one.task_group_id],
            MOST_OF_OWNER - of_owner[one.owner_id],
        )
        most = max(0, most)
        of_group[one.task_group_id] += most
        of_owner[one.owner_id] += most
        if most or (not live.count and one.array_next == one.array_count):
            found.append((turns[one.owner_id], one.pk, most))
            turns[one.owner_id] += 1
    return [(pk, most) for _, pk, most in sorted(found, key=lambda turn: turn[0])]


def _live_by_array(which: Q) -> dict[UUID, LiveElements]:
    """The elements that have not ended, of arrays with any."""
    rows = Task.objects.filter(which, array__isnull=False, state__in=LIVE_STATES).order_by()
    counted = rows.values("array_id", "owner_id", "array__state").annotate(
        count=Count("pk"),
        queued=Count("pk", filter=eligibility.WAITING),
        eligible=Count("pk", filter=eligibility.ELIGIBLE),
    )
    return {
        one["array_id"]: LiveElements(
            one["count"],
            one["queued"],
            one["eligible"],
            one["owner_id"],
            one["array__state"] == TaskState.ABORTED,
        )
        for one in counted
    }


def _storable(array: Task, live: LiveElements) -> int:
    """How many elements may be stored now, given those that have not ended."""
    if array.ineligible_code:
        return 0
    left = (array.array_count or 0) - array.array_next
    storable = WAITING - live.queued
    if array.array_limit is not None:
        storable = min(storable, array.array_limit - live.count)
    return max(0, min(left, storable))


def _store(array: Task, count: int) -> None:
    now = timezone.now()
    first = array.array_next
    indices = array.array_indices or range(array.array_count or 0)
    copied = {name: getattr(array, name) for name in _COPIED}
    chosen = indices[first : first + count]
    # Tasks of the same submission start in the order of their ids.
    ids = sorted(uuid7() for _ in chosen)
    elements = [
        Task(
            **copied,
            pk=pk,
            array_id=array.pk,
            array_index=index,
            state=TaskState.QUEUED,
            created_at=now,
            changed_at=now,
        )
        for pk, index in zip(ids, chosen, strict=True)
    ]
    Task.objects.bulk_create(elements)
    Task.objects.filter(pk=array.pk).update(array_next=first + len(elements))
    subjects = [_subject(array, element.pk) for element in elements]
    transition_record(ENQUEUE, subjects)


def _end(array: Task) -> None:
    """End an array as its elements ended: failed if one failed, else aborted if one was."""
    counts = elements_by_state([array.pk]).get(array.pk, {})
    failed, aborted = counts.get(TaskState.FAILED, 0), counts.get(TaskState.ABORTED, 0)
    transition: TaskTransition = COMPLETE_ARRAY
    detail = ""
    if failed:
        transition, detail = FAIL_ARRAY, f"{failed} of {array.array_count} elements failed"
    elif aborted:
        transition = ABORT_UNSTARTED
        detail = f"{aborted} of {array.array_count} elements were aborted"
    subjects = [_subject(array, array.pk, {"from": TaskState.QUEUED})]
    task_transition(transition, subjects, columns={"state_detail": detail})


def _subject(array: Task, pk: UUID, data: dict[str, str] | None = None) -> TaskSubject:
    return TaskSubject(
        id=pk,
        owner_id=array.owner_id,
        queue_id=array.queue_id,
        policy_id=array.queue.policy_id if array.queue is not None else None,
        data={"from": ""} if data is None else data,
    )
