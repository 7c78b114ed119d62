"""What administrators do to node records and volumes. Nothing here speaks to a node."""

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from apps.accounts.models import User
from apps.core.api import from_model_error
from apps.core.doorbell import after_commit
from apps.core.errors import BadInput, Conflict
from apps.events.services import event_record
from apps.nodes.models import Node, Volume
from apps.policies.models import LiveState

NODE_FIELDS = frozenset({"name", "pool", "labels", "allows_process"})
VOLUME_FIELDS = frozenset({"name", "description", "path", "is_read_only", "scope", "pool"})
# The column's length.
LONGEST_REASON = 500


@transaction.atomic
def node_pause(*, actor: User | None, node: Node, reason: str) -> Node:
    """The node takes nothing new until it is resumed; what runs there goes on.

    Raises:
        BadInput: the reason is too long.
        Conflict: the node was removed.
    """
    if len(reason) > LONGEST_REASON:
        problem = f"has {len(reason)} signs; at most {LONGEST_REASON} are kept"
        raise BadInput(f"reason {problem}.", fields={"reason": problem})
    row = _locked(node)
    row.paused_at = row.paused_at or timezone.now()
    row.pause_reason = reason
    return _saved(row, "node.paused", actor, {"reason": reason})


@transaction.atomic
def node_resume(*, actor: User | None, node: Node) -> Node:
    """Lift the pause, and stop draining."""
    row = _locked(node)
    row.paused_at, row.pause_reason, row.is_draining = None, "", False
    return _saved(row, "node.resumed", actor, {})


@transaction.atomic
def node_drain(*, actor: User | None, node: Node) -> Node:
    """The node finishes what it runs and takes nothing new."""
    row = _locked(node)
    row.is_draining = True
    return _saved(row, "node.draining", actor, {})


@transaction.atomic
def node_change(*, actor: User | None, node: Node, values: Mapping[str, Any]) -> Node:
    """Change name, pool, labels, or whether plain processes may run; what runs there goes on.

    Raises:
        BadInput: naming the field.
        Conflict: the node was removed.
    """
    unknown = set(values) - NODE_FIELDS
    if unknown:
        raise BadInput(f"{min(unknown)} is no field of nodes.", fields={min(unknown): "unknown"})
    row = _locked(node)
    for field, value in values.items():
        setattr(row, field, value)
    try:
        row.full_clean()
    except ValidationError as error:
        raise from_model_error(error) from error
    row.save(update_fields=list(values))
    _record("node.changed", "node", row, actor, {"fields": sorted(values)})
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
    """New work cannot mount it any more; the path on the nodes is not touched."""
    Volume.objects.filter(pk=volume.pk, removed_at__isnull=True).update(removed_at=timezone.now())
    _record("volume.removed", "volume", volume, actor, {})


def _locked(node: Node) -> Node:
    row = Node.objects.select_for_update().get(pk=node.pk)
    if row.is_removed:
        raise Conflict(f"Node {row.name} was removed.")
    return row


def _saved(node: Node, kind: str, actor: User | None, data: Mapping[str, Any]) -> Node:
    # Only these: its server writes the other columns all the time.
    node.save(update_fields=["paused_at", "pause_reason", "is_draining"])
    _record(kind, "node", node, actor, data)
    return node


def _volume_write(
    volume: Volume, kind: str, actor: User | None, values: Mapping[str, Any]
) -> Volume:
    unknown = set(values) - VOLUME_FIELDS
    if unknown:
        raise BadInput(f"{min(unknown)} is no field of volumes.", fields={min(unknown): "unknown"})
    for field, value in values.items():
        setattr(volume, field, value)
    try:
        volume.full_clean()
    except ValidationError as error:
        raise from_model_error(error) from error
    volume.save()
    _record(kind, "volume", volume, actor, {"fields": sorted(values)})
    return volume


def _record(
    kind: str, noun: str, row: Node | Volume, actor: User | None, data: Mapping[str, Any]
) -> None:
    # What decides whether a queue takes a task is remembered per version.
    LiveState.objects.filter(id=1).update(version=F("version") + 1)
    event_record(
        kind,
        actor=actor,
        object_type=noun,
        object_id=row.pk,
        data={"name": row.name, **data},
        topics=["nodes", "overview"],
    )
    after_commit(tasks=["allocation.run_pass"])
