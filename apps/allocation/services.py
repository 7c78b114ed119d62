"""One pass: load, decide, apply."""

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
import structlog
from django.db import DatabaseError, connection, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import F
from django.utils import timezone

from apps.allocation.applier import (
    AppliedPlan,
    apply_plan,
    apply_reasons,
    has_kept_placements,
    kept_placements_apply,
)
from apps.allocation.engine import Engine
from apps.allocation.engine.model.plan import Move, Placement, Plan, Preempt
from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.loader import LoadedSnapshot, load
from apps.allocation.loader.texts import microseconds
from apps.allocation.models import PassRecord, PassState
from apps.allocation.scenarios.storage import snapshot_pack
from apps.core.crash_points import crash_point
from apps.core.notifications import NOTIFY_ALLOCATION, after_commit
from apps.nodes.selectors import is_suspended
from apps.tasks.services.arrays import arrays_advance
from apps.tasks.services.dependencies import dependencies_settle

log = structlog.get_logger(__name__)

# Any number that nothing else in this database uses.
PASS_LOCK = 7_170_001
NEXT_LOCK = 7_170_002
# The server ends a pass whose process is silent for so long: it was stopped, or its machine is
# gone. No other process could run a pass until then.
SILENT_MOST_MS = 30_000
# How often a pass shows the server that its process still decides, and for how long it does.
ALIVE_EVERY_S = 5.0
DECIDE_MOST_S = 600.0
FAILURE_LENGTH = 500
SNAPSHOTS_KEPT = 200
# What waits in this database may run in a later state of it.
RESTORED = "The database was restored from a backup: scheduling is suspended until confirmed."
RECORDS_KEPT = timedelta(days=30)
# Of this process: passes over the same configuration share what they compile.
ENGINE = Engine()


@dataclass(frozen=True, slots=True)
class PassOutcome:
    """What one pass did; `ran` False: another process ran one, or none may for `suspended`."""

    ran: bool
    suspended: str = ""
    placed: int = 0
    preempted: int = 0
    moved: int = 0
    skipped: int = 0
    waiting: int = 0
    duration_ms: int = 0


def run_pass(*, waits: bool = False) -> PassOutcome:
    """Decide and write, in one transaction, one process at a time.

    A process that is killed or stopped inside a pass loses its transaction, and with it the lock
    and everything that it wrote. Nothing here touches the network.

    Args:
        waits: where a pass is under way, run after it unless another one waits already. What
            changed since that pass read the database is then decided at once, not at the next
            tick.
    """
    try:
        arrays_advance()
        return _run_pass(waits=waits)
    except Exception as error:
        _note_failure(error)
        raise


def _run_pass(*, waits: bool) -> PassOutcome:
    started = time.monotonic()
    with _collecting_later(), transaction.atomic():
        if not _lock(waits=waits):
            return PassOutcome(ran=False)
        if is_suspended():
            log.warning("pass.held", reason=RESTORED)
            return PassOutcome(ran=False, suspended=RESTORED)
        now = timezone.now()
        dependencies_settle(now=now)
        loaded = _load(now)
        with _shown_alive():
            plan = ENGINE.decide(loaded.snapshot)
        applied = apply_plan(plan, snapshot=loaded.snapshot, group_ids=loaded.group_ids, now=now)
        apply_reasons(plan.waiting, group_ids=loaded.group_ids, now=now)
        outcome = PassOutcome(
            ran=True,
            placed=len(applied.placed),
            preempted=len(applied.preempted),
            moved=len(applied.moved),
            skipped=applied.skipped,
            waiting=len(plan.waiting),
            duration_ms=round((time.monotonic() - started) * 1000),
        )
        _record(loaded.snapshot, plan, applied, outcome, now)
        if applied.placed or applied.skipped:
            # Pass again: new heads may have followed, and what was skipped has changed.
            after_commit(notify=[NOTIFY_ALLOCATION])
    if outcome.preempted:
        crash_point("preempt.planned")
    if outcome.placed or outcome.skipped:
        log.info(
            "pass.decided",
            placed=outcome.placed,
            preempted=outcome.preempted,
            moved=outcome.moved,
            skipped=outcome.skipped,
        )
    return outcome


def _load(now: datetime) -> LoadedSnapshot:
    """The state, with all placements admitted that were kept for moved tasks.

    An attempt that ends between the two is not charged any more, and its placement not yet held:
    then the state is read again.
    """
    while True:
        kept_placements_apply(now=now)
        loaded = load(now_us=microseconds(now))
        if not has_kept_placements():
            return loaded


def _note_failure(error: Exception) -> None:
    """Store why a pass failed, for `manage.py doctor`, unless the database is away too."""
    if connection.in_atomic_block:
        return
    lines = str(error).strip().splitlines()
    words = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    # Else the failure of the pass itself is what the caller reads.
    with suppress(DatabaseError):
        PassState.objects.filter(id=1).update(
            failed_at=timezone.now(), failure=words[:FAILURE_LENGTH]
        )


@contextmanager
def _shown_alive() -> Iterator[None]:
    """Send a statement now and then while this thread only computes.

    Else the server would end a pass that decides for longer than `SILENT_MOST_MS`, and each pass
    after it. A process that is stopped sends nothing, and one that never ends stops doing so after
    `DECIDE_MOST_S`.
    """
    if connection.vendor != "postgresql":
        yield
        return
    # Connections of psycopg may be used by several threads, Django's by one.
    session = connection.connection
    decided = threading.Event()
    until = time.monotonic() + DECIDE_MOST_S

    def show_alive() -> None:
        # A session that the server has ended is what the pass itself meets next.
        with suppress(psycopg.Error):
            while not decided.wait(ALIVE_EVERY_S) and time.monotonic() < until:
                session.execute("SELECT 1")

    thread = threading.Thread(target=show_alive, name="pass-alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        decided.set()
        thread.join()


@contextmanager
def _collecting_later() -> Iterator[None]:
    """Postpone garbage collection.

    A pass makes very many objects, hardly any of them in cycles, and Python would go through all
    of them repeatedly: half of the time of a pass over 5,000 nodes. What is no longer referred
    to goes at once anyway.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _lock(*, waits: bool) -> bool:
    """One pass at a time. SQLite's immediate transactions are that lock already."""
    if connection.vendor != "postgresql":
        return True
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, true), "
            "pg_try_advisory_xact_lock(%s)",
            [str(SILENT_MOST_MS), PASS_LOCK],
        )
        return bool(cursor.fetchone()[1]) or (waits and _lock_next(cursor))


def _lock_next(cursor: CursorWrapper) -> bool:
    """Be the one that waits for the current pass; False when there is one already.

    Its place is free for the next as soon as it has the lock: it has read nothing until then.
    """
    cursor.execute("SELECT pg_try_advisory_lock(%s)", [NEXT_LOCK])
    if not cursor.fetchone()[0]:
        return False
    try:
        # A savepoint, so that the place is released whatever happens.
        with transaction.atomic():
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [PASS_LOCK])
    finally:
        cursor.execute("SELECT pg_advisory_unlock(%s)", [NEXT_LOCK])
    return True


def _record(
    snapshot: Snapshot, plan: Plan, applied: AppliedPlan, outcome: PassOutcome, now: datetime
) -> None:
    """A pass that decided nothing only counts; others keep decisions and snapshot."""
    decided = bool(plan.placed)
    PassState.objects.filter(id=1).update(
        last_at=now,
        passes=F("passes") + 1,
        idle_passes=F("idle_passes") + (0 if decided else 1),
        last_duration_ms=outcome.duration_ms,
    )
    if not decided:
        return
    record = PassRecord.objects.create(
        at=now,
        duration_ms=outcome.duration_ms,
        placed=outcome.placed,
        preempted=outcome.preempted,
        moved=outcome.moved,
        skipped=outcome.skipped,
        decisions=_decisions(applied),
        snapshot=snapshot_pack(snapshot),
    )
    PassRecord.objects.filter(pk__lte=record.pk - SNAPSHOTS_KEPT, snapshot__isnull=False).update(
        snapshot=None
    )
    PassRecord.objects.filter(at__lt=now - RECORDS_KEPT).delete()


def _decisions(applied: AppliedPlan) -> dict[str, Any]:
    return {
        "placed": [_placed(placement) for placement in applied.placed],
        "preempted": [_stop_data(victim) for victim in applied.preempted],
        "moved": [_stop_data(moved) for moved in applied.moved],
    }


def _placed(placement: Placement) -> dict[str, Any]:
    return {
        "task": str(placement.task),
        "queue": placement.queue,
        "pool": placement.pool,
        "tier": placement.tier.value,
        "waits_for": [str(task) for task in placement.waits_for],
    }


def _stop_data(one: Preempt | Move) -> dict[str, Any]:
    return {"task": str(one.task), "pool": one.pool, "beneficiary": str(one.beneficiary)}
