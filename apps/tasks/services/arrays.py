"""Arrays: their elements are stored shortly before they may start, and they end with the last one.

An array itself is never started. A step stores at most as many elements as a pass can start, and
no more than the array's limit leaves; what was committed counts, so a step that is cut off or
repeated changes nothing.
"""

from collections import Counter
from uuid import UUID

import structlog
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from apps.core.ids import uuid7
from apps.tasks.lifecycle.states import ENDED_STATES, TaskState
from apps.tasks.lifecycle.transitions import (
    ABORT_UNSTARTED,
    COMPLETE_ARRAY,
    ENQUEUE,
    FAIL_ARRAY,
    TaskTransition,
)
from apps.tasks.lifecycle.writers import TaskSubject, task_transition, transition_record
from apps.tasks.models import Task
from apps.tasks.selectors.arrays import elements_by_state
from apps.tasks.task_spec import COLUMNS

log = structlog.get_logger(__name__)

# Waiting elements of one task group: no pass starts more of them.
WAITING = 1000
# Elements that one step stores: the pass waits for it.
STORED_AT_ONCE = 2000
_LIVE_STATES = [state for state in TaskState.values if state not in ENDED_STATES]
_COPIED = (
    *("owner_id", "queue_id", "task_group_id", "content", "secrets", "is_by_owner"),
    *("submitted_at", "waiting_since"),
    *COLUMNS,
)


def arrays_advance() -> None:
    """Store the elements of arrays that may start soon, and end arrays without any left.

    Each array in a transaction of its own: one that fails stops neither the others nor the pass.
    What is too much for one step is left to the next.
    """
    left = STORED_AT_ONCE
    for pk, most in _arrays_to_advance():
        try:
            left -= array_advance(pk, most=min(most, left))
        except DatabaseError as error:
            log.warning("array.failed", array=str(pk), detail=str(error).strip())


@transaction.atomic
def array_advance(pk: UUID, *, most: int = WAITING) -> int:
    """Do what this array needs now; nothing where another process or request has it locked.

    Args:
        most: elements to store.

    Returns:
        How many were stored.
    """
    # On SQLite the transaction itself excludes other writers.
    has_locks = connection.features.has_select_for_update_skip_locked
    rows = Task.objects.filter(pk=pk, state=TaskState.QUEUED, array_count__isnull=False)
    if has_locks:
        rows = rows.select_for_update(no_key=True, skip_locked=True, of=("self",))
    array = rows.select_related("queue").first()
    if array is None:
        return 0
    live = elements_by_state([pk], states=_LIVE_STATES).get(pk, {})
    count = min(_storable(array, live), most)
    if count > 0:
        _store(array, count)
    elif not live and array.array_next == array.array_count:
        _end(array)
    return max(count, 0)


def _arrays_to_advance() -> list[tuple[UUID, int]]:
    """Arrays that may store elements or end, and how many they may store. Two queries.

    In the order of the queue; arrays of one task group share what may wait of it, those further
    ahead first.
    """
    arrays = Task.objects.filter(state=TaskState.QUEUED, array_count__isnull=False)
    columns = ("array_count", "array_limit", "array_next", "ineligible_code", "task_group_id")
    rows = list(arrays.only(*columns).order_by("submitted_at", "pk"))
    if not rows:
        return []
    live = elements_by_state([one.pk for one in rows], states=_LIVE_STATES)
    waiting: Counter[int | None] = Counter()
    found = []
    for one in rows:
        of_array = live.get(one.pk, {})
        waiting[one.task_group_id] += of_array.get(TaskState.QUEUED, 0)
        most = min(_storable(one, of_array), WAITING - waiting[one.task_group_id])
        if most > 0:
            waiting[one.task_group_id] += most
        if most > 0 or (not of_array and one.array_next == one.array_count):
            found.append((one.pk, max(most, 0)))
    return found


def _storable(array: Task, live: dict[str, int]) -> int:
    """How many elements may be stored now, given those that have not ended."""
    if array.ineligible_code:
        return 0
    left = (array.array_count or 0) - array.array_next
    storable = WAITING - live.get(TaskState.QUEUED, 0)
    if array.array_limit is not None:
        storable = min(storable, array.array_limit - sum(live.values()))
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
