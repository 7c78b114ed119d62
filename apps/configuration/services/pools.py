"""Pauses pools and policies, and switches resource management on and off."""

from typing import Any, TypeVar

from django.db import transaction
from django.utils import timezone

from apps.accounts.models import User
from apps.configuration.services.change_records import live_change_notify
from apps.configuration.services.rows import live_lock
from apps.core.errors import BadInput, Conflict
from apps.events.services import event_record, undo_check
from apps.policies.models import LiveState, Policy, Pool, Queue

# The column's length: a longer reason is refused before it reaches the database.
LONGEST_REASON = 500

_Row = TypeVar("_Row", Pool, Policy)


def pool_pause(*, actor: User | None, pool: Pool, reason: str) -> Pool:
    """Pause the pool: it admits nothing until it is resumed; running tasks go on.

    Raises:
        BadInput: the reason is too long.
        Conflict: the pool was removed.
    """
    return _pause(pool, actor=actor, kind="pool.paused", reason=reason, is_paused=True)


def pool_resume(*, actor: User | None, pool: Pool, undoes: int | None = None) -> Pool:
    """Lift the pause; with `undoes`, the event of a pause, only if it is the last one."""
    return _resume(pool, actor=actor, kind="pool.resumed", undoes=undoes)


def policy_pause(*, actor: User | None, policy: Policy, reason: str) -> Policy:
    """Pause the policy and those below it: nothing is admitted; running tasks go on."""
    return _pause(policy, actor=actor, kind="policy.paused", reason=reason, is_paused=True)


def policy_resume(*, actor: User | None, policy: Policy, undoes: int | None = None) -> Policy:
    """Lift the pause; with `undoes`, the event of a pause, only if it is the last one."""
    return _resume(policy, actor=actor, kind="policy.resumed", undoes=undoes)


@transaction.atomic
def resource_management_switch(
    *, actor: User | None, is_enabled: bool, undoes: int | None = None
) -> LiveState:
    """Switch it; with `undoes`, the event of a switch, only if it is the last one.

    Off: nothing is admitted or preempted; running tasks are still managed.
    """
    state = live_lock()
    name = "Resource management"
    undo_check(undoes, object_type="configuration", object_id=state.pk, name=name)
    if state.is_enabled != is_enabled:
        state.is_enabled = is_enabled
        state.save(update_fields=["is_enabled"])
        event_record(
            "configuration.switched",
            actor=actor,
            object_type="configuration",
            object_id=state.pk,
            data={
                "name": name,
                "is_enabled": is_enabled,
                "before": {"is_enabled": not is_enabled},
                "after": {"is_enabled": is_enabled},
            },
        )
        live_change_notify(topics=["queues"])
    return state


def pause_facts(row: Pool | Policy | Queue) -> dict[str, Any]:
    """The facts of a pause for the audit log."""
    return {"is_paused": row.paused_at is not None, "pause_reason": row.pause_reason}


@transaction.atomic
def _resume(row: _Row, *, actor: User | None, kind: str, undoes: int | None) -> _Row:
    live_lock()
    noun = kind.split(".", maxsplit=1)[0]
    undo_check(undoes, object_type=noun, object_id=row.pk, name=row.name)
    return _pause(row, actor=actor, kind=kind, reason="", is_paused=False)


@transaction.atomic
def _pause(row: _Row, *, actor: User | None, kind: str, reason: str, is_paused: bool) -> _Row:
    if len(reason) > LONGEST_REASON:
        problem = f"has {len(reason)} characters; use at most {LONGEST_REASON}"
        raise BadInput(f"reason {problem}.", fields={"reason": problem})
    live_lock()
    row.refresh_from_db()
    if row.is_removed:
        raise Conflict(f"{row.name} was removed.")
    before = pause_facts(row)
    row.paused_at = (row.paused_at or timezone.now()) if is_paused else None
    row.pause_reason = reason
    row.save(update_fields=["paused_at", "pause_reason"])
    noun = kind.split(".", maxsplit=1)[0]
    event_record(
        kind,
        actor=actor,
        object_type=noun,
        object_id=row.pk,
        policy_id=row.pk if noun == "policy" else None,
        data={
            "name": row.name,
            "reason": reason,
            "before": before,
            "after": pause_facts(row),
        },
    )
    live_change_notify(topics=[f"{noun}.{row.pk}", "queues"])
    return row
