"""Reasons: what the pass said about the tasks at the head of each run."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from apps.allocation.engine.plan import Wait
from apps.allocation.engine.reasons import to_data
from apps.core.doorbell import after_commit
from apps.tasks.models import ReasonChange, Run

_UPDATE_POSTGRESQL = """
    UPDATE tasks_run SET head_id = new.head, reason_code = new.code,
        reason = new.reason, reason_at = CASE WHEN new.is_other THEN %s ELSE reason_at END
    FROM jsonb_to_recordset(%s::jsonb)
        AS new (id bigint, head uuid, code text, reason jsonb, is_other boolean)
    WHERE tasks_run.id = new.id
"""
_UPDATE_SQLITE = """
    UPDATE tasks_run SET head_id = %s, reason_code = %s, reason = %s,
        reason_at = CASE WHEN %s THEN %s ELSE reason_at END
    WHERE id = %s
"""


@dataclass(frozen=True, slots=True)
class _Said:
    """What is known about one run, from the last pass or from this one."""

    head: str
    code: str
    reason: dict[str, Any]

    @property
    def blocker(self) -> str:
        """What stands in the way, without its numbers: a change of it is worth a line."""
        first = (self.reason["reasons"][0]["details"] or [{}])[0]
        names = ("pool", "policy", "queue", "user", "key")
        return " ".join(f"{name} {first[name]}" for name in names if name in first)

    @property
    def gist(self) -> tuple[str, str, str]:
        """What stays the same while only numbers change."""
        return self.head, self.code, self.blocker


@dataclass(frozen=True, slots=True)
class _Changed:
    """`is_other`: it is another reason, or another task's, since now."""

    pk: int
    said: _Said
    is_other: bool


def apply_reasons(waiting: Sequence[Wait], *, runs: Sequence[int], now: datetime) -> int:
    """Store what changed since the last pass; three statements at most.

    Args:
        runs: ids of the run rows in the order of the snapshot's `runs`.

    Returns:
        How many runs have a new reason or new numbers.
    """
    known = _known(runs)
    queues: set[Any] = set()
    changed: list[_Changed] = []
    history: list[ReasonChange] = []
    for wait in waiting:
        if not wait.tasks:
            continue
        pk, said, before = runs[wait.run], _said(wait), known.get(runs[wait.run])
        if said == before:
            continue
        is_other = before is None or before.gist != said.gist
        changed.append(_Changed(pk, said, is_other=is_other))
        queues.add(wait.queue)
        if is_other:
            history.append(_change(said, now))
    _write(changed, now)
    ReasonChange.objects.bulk_create(history)
    after_commit(topics=[f"queue.{queue}" for queue in sorted(queues, key=str)])
    return len(changed)


def _said(wait: Wait) -> _Said:
    data = {
        "reasons": [to_data(reason) for reason in wait.reasons],
        "place": wait.place,
        "count": wait.count,
    }
    return _Said(head=str(wait.tasks[0]), code=wait.reasons[0].code.value, reason=data)


def _known(runs: Sequence[int]) -> dict[int, _Said]:
    rows = Run.objects.filter(pk__in=runs, head_id__isnull=False)
    return {
        pk: _Said(head=str(head), code=code, reason=reason)
        for pk, head, code, reason in rows.values_list("pk", "head_id", "reason_code", "reason")
    }


def _change(said: _Said, now: datetime) -> ReasonChange:
    return ReasonChange(
        task_id=said.head, at=now, code=said.code, blocker=said.blocker, data=said.reason
    )


def _write(changed: Sequence[_Changed], now: datetime) -> None:
    if not changed:
        return
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            # One text instead of an array of texts, whose quotes the driver escapes one by one.
            rows = [
                {
                    "id": one.pk,
                    "head": one.said.head,
                    "code": one.said.code,
                    "reason": one.said.reason,
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
                        one.said.head.replace("-", ""),
                        one.said.code,
                        json.dumps(one.said.reason),
                        one.is_other,
                        now,
                        one.pk,
                    )
                    for one in changed
                ],
            )
