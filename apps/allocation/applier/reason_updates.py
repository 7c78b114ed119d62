"""Reasons: what the pass said about the first tasks of each group."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from apps.allocation.engine.model.plan import Wait
from apps.allocation.engine.model.reasons import to_data
from apps.allocation.engine.model.snapshot import Id
from apps.core.notifications import after_commit
from apps.tasks.models import ReasonChange, TaskGroup

_UPDATE_POSTGRESQL = """
    UPDATE tasks_taskgroup SET head_id = new.head, reason_code = new.code,
        reason = new.reason, reason_at = CASE WHEN new.is_other THEN %s ELSE reason_at END
    FROM jsonb_to_recordset(%s::jsonb)
        AS new (id bigint, head uuid, code text, reason jsonb, is_other boolean)
    WHERE tasks_taskgroup.id = new.id
"""
_UPDATE_SQLITE = """
    UPDATE tasks_taskgroup SET head_id = %s, reason_code = %s, reason = %s,
        reason_at = CASE WHEN %s THEN %s ELSE reason_at END
    WHERE id = %s
"""


@dataclass(frozen=True, slots=True)
class _StoredReason:
    """What is known about one group, from the last pass or from this one."""

    head: str
    code: str
    reason: dict[str, Any]

    @property
    def blocker(self) -> str:
        """What blocks the task, without numbers: a change of it enters the timeline."""
        first = (self.reason["reasons"][0]["details"] or [{}])[0]
        names = ("pool", "policy", "queue", "user", "key")
        return " ".join(f"{name} {first[name]}" for name in names if name in first)

    @property
    def identity(self) -> tuple[str, str, str]:
        """What stays the same while only numbers change."""
        return self.head, self.code, self.blocker


@dataclass(frozen=True, slots=True)
class _ReasonUpdate:
    """`is_other`: it is another reason, or another task's, since now."""

    pk: int
    stored: _StoredReason
    is_other: bool


def apply_reasons(waiting: Sequence[Wait], *, group_ids: Sequence[int], now: datetime) -> int:
    """Store what changed since the last pass; three statements at most.

    Args:
        group_ids: ids of the group rows in the order of the snapshot's `queued_groups`.

    Returns:
        How many groups have a new reason or new numbers.
    """
    known = _known(group_ids)
    queues: set[Any] = set()
    changed: list[_ReasonUpdate] = []
    history: list[ReasonChange] = []
    for wait in waiting:
        if not wait.tasks:
            continue
        pk, stored, before = (
            group_ids[wait.index],
            _stored_reason(wait),
            known.get(group_ids[wait.index]),
        )
        if stored == before:
            continue
        is_other = before is None or before.identity != stored.identity
        changed.append(_ReasonUpdate(pk, stored, is_other=is_other))
        queues.add(wait.queue)
        if is_other:
            history.append(_change(stored, wait.queue, now))
    _write(changed, now)
    ReasonChange.objects.bulk_create(history)
    after_commit(topics=[f"queue.{queue}" for queue in sorted(queues, key=str)])
    return len(changed)


def _stored_reason(wait: Wait) -> _StoredReason:
    data = {
        "reasons": [to_data(reason) for reason in wait.reasons],
        "position": wait.position,
        "count": wait.count,
    }
    return _StoredReason(head=str(wait.tasks[0]), code=wait.reasons[0].code.value, reason=data)


def _known(group_ids: Sequence[int]) -> dict[int, _StoredReason]:
    rows = TaskGroup.objects.filter(pk__in=group_ids, head_id__isnull=False)
    return {
        pk: _StoredReason(head=str(head), code=code, reason=reason)
        for pk, head, code, reason in rows.values_list("pk", "head_id", "reason_code", "reason")
    }


def _change(stored: _StoredReason, queue: Id, now: datetime) -> ReasonChange:
    # With the queue, which the task may leave: its pools are named by their order there.
    return ReasonChange(
        task_id=stored.head,
        at=now,
        code=stored.code,
        blocker=stored.blocker,
        data={**stored.reason, "queue": queue},
    )


def _write(changed: Sequence[_ReasonUpdate], now: datetime) -> None:
    if not changed:
        return
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # One text instead of an array of texts, whose quotes the driver escapes one by one.
            rows = [
                {
                    "id": one.pk,
                    "head": one.stored.head,
                    "code": one.stored.code,
                    "reason": one.stored.reason,
                    "is_other": one.is_other,
                }
                for one in changed
            ]
            cursor.execute(_UPDATE_POSTGRESQL, [now, json.dumps(rows)])
        else:
            cursor.executemany(
                _UPDATE_SQLITE,
                [
                    (
                        one.stored.head.replace("-", ""),
                        one.stored.code,
                        json.dumps(one.stored.reason),
                        one.is_other,
                        now,
                        one.pk,
                    )
                    for one in changed
                ],
            )
