"""Changes of node records and volumes by administrators. Nothing here connects to a node."""

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any

import structlog
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Model
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import BadInput, Conflict
from apps.core.model_errors import from_model_error
from apps.core.notifications import NOTIFY_ALLOCATION, NOTIFY_EXECUTION, after_commit
from apps.events.services import event_record, undo_check
from apps.nodes.models import Installation, Node, NodeState, PoolDrift, Volume
from apps.nodes.permissions import VOLUMES
from apps.nodes.selectors import capacity_by_pool
from apps.policies.models import Pool
from apps.policies.services import live_version_raise

log = structlog.get_logger(__name__)

NODE_FIELDS = frozenset({"name", "pool", "labels", "allows_process", "capacity_cap"})
# How a node is reached. Only apps/execution writes these, after it has tried them.
REACHED_BY = frozenset(
    {
        *("address", "port", "user", "key_path", "host_key"),
        *("runtime", "environment", "state_dir"),
    }
)
PAUSE_FIELDS = ("pause_reason", "is_draining")
# What keeps a node from new tasks until an administrator resumes it.
RESUMABLE = frozenset({"pause", "drain", "removal"})
VOLUME_FIELDS = frozenset(
    {"name", "description", "path", "is_read_only", "is_restricted", "scope", "pool"}
)
# The column's length.
LONGEST_REASON = 500
LONGEST_MAINTENANCE_H = 7 * 24
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@transaction.atomic
def node_pause(*, actor: User | None, node: Node, reason: str) -> Node:
    """The node takes nothing new until it is resumed; what runs there goes on.

    Raises:
        BadInput: the reason is too long.
        Conflict: the node was removed.
    """
    if len(reason) > LONGEST_REASON:
        problem = f"has {len(reason)} characters; at most {LONGEST_REASON} are kept"
        raise BadInput(f"reason {problem}.", fields={"reason": problem})
    row = _locked(node)
    before = _pause_facts(row)
    row.paused_at = row.paused_at or timezone.now()
    row.pause_reason = reason
    return _saved(row, "node.paused", actor, {"reason": reason, "before": before})


@transaction.atomic
def node_resume(
    *, actor: User | None, node: Node, ends: Collection[str] = RESUMABLE, undoes: int | None = None
) -> Node:
    """End what `ends` names; with `undoes`, the event of a pause or drain, only the last one."""
    row = _locked(node)
    undo_check(undoes, object_type="node", object_id=row.pk, name=row.name)
    before = _pause_facts(row)
    row.paused_at = None if "pause" in ends else row.paused_at
    row.removal_asked_at = None if "removal" in ends else row.removal_asked_at
    if "drain" in ends:  # A node that is being removed drains until then.
        row.is_draining, row.preflight_failures = row.removal_asked_at is not None, 0
    row.pause_reason = row.pause_reason if row.is_paused or row.is_draining else ""
    return _saved(row, "node.resumed", actor, {"before": before})


@transaction.atomic
def node_drain(*, actor: User | None, node: Node, reason: str = "") -> Node:
    """The node finishes what it runs and takes nothing new."""
    row = _locked(node)
    before = _pause_facts(row)
    row.is_draining = True
    row.pause_reason = reason or row.pause_reason
    if actor is not None:
        # Drained by an administrator from now on, not by its preflight.
        row.preflight_failures = 0
    return _saved(row, "node.draining", actor, {"reason": reason, "before": before})


@transaction.atomic
def node_declare_off(*, actor: User | None, node: Node, reason: str) -> Node:
    """Say that a silent machine is switched off: what ran there is lost, and may run elsewhere.

    If that is wrong the same task runs twice. It ends when the machine answers.

    Raises:
        BadInput: no reason, or one too long.
        Conflict: the node answers, or was removed.
    """
    if not reason.strip() or len(reason) > LONGEST_REASON:
        problem = f"must say why you are sure, in 1 to {LONGEST_REASON} characters"
        raise BadInput(f"reason {problem}.", fields={"reason": problem})
    row = _locked(node)
    if row.state == NodeState.HEALTHY:
        raise Conflict(f"Node {row.name} answers: it is not switched off.")
    before = {"is_off": row.off_at is not None}
    row.off_at = row.off_at or timezone.now()
    row.save(update_fields=["off_at"])
    details = {"reason": reason, "before": before, "after": {"is_off": True}}
    _record("node.declared_off", "node", row, actor, details)
    after_commit(notify=[NOTIFY_EXECUTION])
    return row


@transaction.atomic
def node_dismiss_serial(*, actor: User | None, node: Node) -> Node:
    """Show no longer that the node reported a serial without this installation's signature."""
    row = _locked(node)
    before = _facts(row, ["serial_refused_at"])
    if row.serial_refused_at is not None:
        row.serial_refused_at = None
        row.save(update_fields=["serial_refused_at"])
        _record("node.serial_dismissed", "node", row, actor, {"before": before})
    return row


def node_name_check(name: str) -> None:
    """Raises BadInput for what is no name of a node. Earlier names stay until they are changed."""
    if not _NODE_NAME.fullmatch(name):
        problem = (
            "must have 1 to 63 characters: letters, digits, dots, dashes and underscores, "
            "with a letter or digit first"
        )
        raise BadInput(f"name {problem}.", fields={"name": problem})


@transaction.atomic
def node_change(
    *,
    actor: User | None,
    node: Node,
    values: Mapping[str, Any],
    found: Mapping[str, str] | None = None,
    kind: str = "node.changed",
    notes: Mapping[str, Any] | None = None,
) -> Node:
    """Change a node; what runs there goes on.

    Args:
        values: of `NODE_FIELDS`; also of `REACHED_BY`, where the caller has tried them.
        found: what trying them has shown, columns of the helper.
        notes: further facts for the audit log.

    Raises:
        BadInput: naming the field.
        Conflict: the node was removed.
    """
    unknown = set(values) - NODE_FIELDS - REACHED_BY
    if unknown:
        raise BadInput(f"{min(unknown)} is no field of nodes.", fields={min(unknown): "unknown"})
    row = _locked(node)
    if values.get("name", row.name) != row.name:
        node_name_check(values["name"])
    before = _facts(row, values)
    for field, value in {**values, **(found or {})}.items():
        setattr(row, field, value)
    try:
        row.full_clean()
    except ValidationError as error:
        raise from_model_error(error) from error
    row.save(update_fields=[*values, *(found or ())])
    details = {"fields": sorted(values), "before": before, "after": _facts(row, values)}
    _record(kind, "node", row, actor, {**details, **(notes or {})})
    return row


@transaction.atomic
def node_ask_removal(*, actor: User | None, node: Node, notes: Mapping[str, Any]) -> Node:
    """The node takes nothing new, and is removed once nothing of ours is left there."""
    row = _locked(node)
    row.removal_asked_at = row.removal_asked_at or timezone.now()
    # Like a drain by an administrator: a preflight that passes does not end it.
    row.is_draining, row.preflight_failures = True, 0
    row.save(update_fields=["removal_asked_at", "is_draining", "preflight_failures"])
    _record("node.removal_asked", "node", row, actor, notes)
    after_commit(notify=[NOTIFY_EXECUTION])
    return row


@transaction.atomic
def node_drop(*, actor: User | None, node: Node, notes: Mapping[str, Any]) -> Node:
    """Remove a node on which nothing is held: its name is free, its history stays.

    A launch on a node that is removed meanwhile is refused, and its task is placed elsewhere.
    """
    row = _locked(node)
    row.removed_at = timezone.now()
    row.state, row.state_detail = NodeState.REFUSED, "It was removed."
    row.served_by, row.served_until, row.unknown_work = "", None, 0
    row.save(
        update_fields=[
            *("removed_at", "state", "state_detail"),
            *("served_by", "served_until", "unknown_work"),
        ]
    )
    _record("node.removed", "node", row, actor, notes)
    after_commit(notify=[NOTIFY_EXECUTION])
    return row


@transaction.atomic
def volume_create(*, actor: User | None, values: Mapping[str, Any]) -> Volume:
    """A new volume.

    Args:
        values: of `VOLUME_FIELDS`.

    Raises:
        BadInput: naming the field.
    """
    return _volume_write(Volume(), "volume.created", actor, values)


@transaction.atomic
def volume_change(*, actor: User | None, volume: Volume, values: Mapping[str, Any]) -> Volume:
    """Change what `values` names; running work keeps what it mounted.

    Raises:
        BadInput: naming the field.
        Conflict: the volume was removed.
    """
    row = Volume.objects.select_for_update().get(pk=volume.pk)
    if row.is_removed:
        raise Conflict(f"Volume {row.name} was removed.")
    return _volume_write(row, "volume.changed", actor, values)


@transaction.atomic
def volume_remove(*, actor: User | None, volume: Volume) -> None:
    """New work cannot mount it any more, and its rules go; the path on the nodes is not touched."""
    Volume.objects.filter(pk=volume.pk, removed_at__isnull=True).update(removed_at=timezone.now())
    for rows in (VOLUMES.by_user, VOLUMES.by_group):
        rows._default_manager.filter(content_object=volume).delete()
    _record("volume.removed", "volume", volume, actor, {"before": _facts(volume, VOLUME_FIELDS)})


@transaction.atomic
def maintenance_plan(*, actor: User | None, hours: float) -> Installation:
    """Grant leases that outlast planned work on the control plane; 0 hours end it early.

    What was granted meanwhile holds: a lease never gets shorter.

    Raises:
        BadInput: not a time, or longer than a week.
    """
    if not 0 <= hours <= LONGEST_MAINTENANCE_H:
        problem = f"is {hours:g}: it must lie between 0 and {LONGEST_MAINTENANCE_H}"
        raise BadInput(f"hours {problem}.", fields={"hours": problem})
    row = Installation.objects.select_for_update().get(id=1)
    before = _facts(row, ["maintenance_until"])
    row.maintenance_until = timezone.now() + timedelta(hours=hours) if hours else None
    row.save(update_fields=["maintenance_until"])
    details = {"hours": hours, "before": before, "after": _facts(row, ["maintenance_until"])}
    _record_installation("installation.maintenance", actor, details)
    return row


@transaction.atomic
def restore_confirm(*, actor: User | None) -> Installation:
    """The restored database is right: what nodes run beyond it is ended, then passes go on.

    Raises:
        Conflict: it was not restored.
    """
    row = Installation.objects.select_for_update().get(id=1)
    if row.restored_at is None:
        raise Conflict("The database was not restored from a backup: there is nothing to confirm.")
    row.restore_confirmed_at = row.restore_confirmed_at or timezone.now()
    row.save(update_fields=["restore_confirmed_at"])
    _record_installation("installation.restore_confirmed", actor, {})
    after_commit(notify=[NOTIFY_EXECUTION])
    return row


def drift_note() -> None:
    """Record when what a pool's nodes have begins to differ from what is configured, and ends.

    Every process that serves nodes may call it at any time: one of them records each change.
    """
    pools = list(Pool.objects.filter(removed_at__isnull=True))
    found = capacity_by_pool(pools)
    drifting = {pool.pk: pool for pool in pools if found[pool.pk].differences}
    known = set(PoolDrift.objects.values_list("pool_id", flat=True))
    for pk in sorted(drifting.keys() - known):
        _drift_began(drifting[pk], [one.sentence for one in found[pk].differences])
    for pk in sorted(known - drifting.keys()):
        _drift_ended(pk)


@transaction.atomic
def _drift_began(pool: Pool, sentences: list[str]) -> None:
    _row, is_new = PoolDrift.objects.get_or_create(pool=pool, defaults={"since": timezone.now()})
    if is_new:
        detail = " ".join(sentences)
        log.warning("pool.drift", pool=pool.name, detail=detail)
        _record_drift("pool.drift", pool.pk, {"name": pool.name, "detail": detail})


@transaction.atomic
def _drift_ended(pool_id: int) -> None:
    gone, _rows = PoolDrift.objects.filter(pool=pool_id).delete()
    if gone:
        name = Pool.objects.values_list("name", flat=True).get(pk=pool_id)
        log.info("pool.drift_over", pool=name)
        _record_drift("pool.drift_over", pool_id, {"name": name})


def _record_drift(kind: str, pool_id: int, data: Mapping[str, Any]) -> None:
    event_record(
        kind,
        actor=None,
        object_type="pool",
        object_id=pool_id,
        data=data,
        topics=["overview", f"pool.{pool_id}"],
    )


def _record_installation(kind: str, actor: User | None, data: Mapping[str, Any]) -> None:
    event_record(
        kind,
        actor=actor,
        object_type="installation",
        object_id="1",
        data=dict(data),
        topics=["nodes", "overview"],
    )


def _locked(node: Node) -> Node:
    row = Node.objects.select_for_update().get(pk=node.pk)
    if row.is_removed:
        raise Conflict(f"Node {row.name} was removed.")
    return row


def _saved(node: Node, kind: str, actor: User | None, data: Mapping[str, Any]) -> Node:
    # Only these: its server writes the other columns all the time.
    node.save(update_fields=[*PAUSE_FIELDS, "paused_at", "preflight_failures", "removal_asked_at"])
    _record(kind, "node", node, actor, {**data, "after": _pause_facts(node)})
    return node


def _pause_facts(node: Node) -> dict[str, Any]:
    facts = {"is_paused": node.is_paused, "is_being_removed": node.removal_asked_at is not None}
    return {**facts, **_facts(node, PAUSE_FIELDS)}


def _facts(row: Model, fields: Iterable[str]) -> dict[str, Any]:
    """Columns for the audit log; other rows by their names."""
    values = ((name, getattr(row, name)) for name in sorted(fields))
    return {name: str(value) if isinstance(value, Model) else value for name, value in values}


def _volume_write(
    volume: Volume, kind: str, actor: User | None, values: Mapping[str, Any]
) -> Volume:
    unknown = set(values) - VOLUME_FIELDS
    if unknown:
        raise BadInput(f"{min(unknown)} is no field of volumes.", fields={min(unknown): "unknown"})
    before = {} if volume._state.adding else _facts(volume, values)
    for field, value in values.items():
        setattr(volume, field, value)
    try:
        volume.full_clean()
    except ValidationError as error:
        raise from_model_error(error) from error
    volume.save()
    details = {"fields": sorted(values), "before": before, "after": _facts(volume, values)}
    _record(kind, "volume", volume, actor, details)
    return volume


def _record(
    kind: str, noun: str, row: Node | Volume, actor: User | None, data: Mapping[str, Any]
) -> None:
    live_version_raise()
    event_record(
        kind,
        actor=actor,
        object_type=noun,
        object_id=row.pk,
        data={"name": row.name, **data},
        topics=["nodes", "overview"],
    )
    after_commit(notify=[NOTIFY_ALLOCATION])
