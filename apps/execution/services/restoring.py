"""Telling a database that was restored from a backup from one that only grows.

Every exchange tells the node a serial, the number of the last event. It never gets smaller while
the database is itself; a node that has heard a higher one has worked for a later state of it.
Then nothing unknown is killed and nothing is admitted, until an administrator has looked.
"""

from dataclasses import dataclass

import structlog
from django.core.management.color import no_style
from django.db import connection, transaction
from django.db.models import Max
from django.utils import timezone

from apps.core.doorbell import after_commit
from apps.events.models import Event
from apps.events.services import event_record
from apps.nodes.models import Installation
from apps.nodes.selectors import nodes_unsettled

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Trust:
    """What may be done about work that the database does not know.

    Args:
        is_doubted: the database was restored, and is not settled with the nodes.
        is_confirmed: an administrator says that it is right: what it does not know has to go.
    """

    is_doubted: bool
    is_confirmed: bool


def own_serial() -> int:
    """The number of the last event; grows with everything that happens."""
    return Event.objects.aggregate(last=Max("id"))["last"] or 0


def trust_now() -> Trust:
    """Whether the database can be trusted to know all that runs."""
    row = Installation.objects.get(id=1)
    return Trust(row.restored_at is not None, row.restore_confirmed_at is not None)


def serial_heard(serial: int) -> None:
    """A node has heard of this serial; one that lies ahead of the database tells of a backup."""
    if serial <= own_serial():
        return
    with transaction.atomic():
        row = Installation.objects.select_for_update().get(id=1)
        if serial <= row.highest_serial and row.restored_at is not None:
            return
        row.highest_serial = max(serial, row.highest_serial)
        is_new = row.restored_at is None
        row.restored_at = row.restored_at or timezone.now()
        row.save(update_fields=["restored_at", "highest_serial"])
        if is_new:
            log.error("database.restored", heard=serial, own=own_serial())
            _record("installation.restored", {"heard": serial, "own": own_serial()})


def restore_settle() -> bool:
    """Let passes go on, once every node has shown that it runs nothing unknown any more."""
    row = Installation.objects.get(id=1)
    if row.restored_at is None or row.restore_confirmed_at is None or nodes_unsettled().exists():
        return False
    with transaction.atomic():
        settled = Installation.objects.filter(
            id=1, restored_at__isnull=False, restore_confirmed_at__isnull=False
        ).update(restored_at=None, restore_confirmed_at=None)
        if settled:
            _outgrow(row.highest_serial)
            _record("installation.settled", {})
            after_commit(tasks=["allocation.run_pass"])
    return bool(settled)


def _outgrow(serial: int) -> None:
    """Number events beyond all that nodes have heard, so that they tell of no backup again."""
    if serial < own_serial():
        return
    Event.objects.create(
        id=serial + 1, kind="installation.serial", object_type="installation", object_id="1"
    )
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), [Event]):
            cursor.execute(statement)


def _record(kind: str, data: dict[str, int]) -> None:
    event_record(
        kind,
        actor=None,
        object_type="installation",
        object_id="1",
        data=data,
        topics=["nodes", "overview"],
    )
