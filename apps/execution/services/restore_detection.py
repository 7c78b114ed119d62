"""Telling a database that was restored from a backup from one that only grows.

Every exchange tells the node a serial, the number of the last event, signed with the key ring. It
never gets smaller while the database is itself; a node that shows a higher one with its signature
has worked for a later state of it. One without is refused, and concerns that node alone.
Then nothing unknown is killed and nothing is admitted, until an administrator has looked.
"""

from dataclasses import dataclass

import structlog
from django.core.management.color import no_style
from django.db import connection, transaction
from django.db.models import Max
from django.utils import timezone

from apps.core.keyring import is_signed, sign
from apps.core.notifications import NOTIFY_ALLOCATION, after_commit
from apps.events.models import Event
from apps.events.services import event_record
from apps.execution.services.inventory import node_record_refused_serial
from apps.nodes.models import Installation, Node
from apps.nodes.selectors import nodes_unsettled

PURPOSE = "node serial"
# More events than an installation ever writes; numbers of events are 64 bits wide.
MOST_AHEAD = 10**12
HIGHEST = 2**63 - 1

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DatabaseTrust:
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


def database_trust() -> DatabaseTrust:
    """Whether the database can be trusted to know all that runs."""
    row = Installation.objects.get(id=1)
    return DatabaseTrust(row.restored_at is not None, row.restore_confirmed_at is not None)


def serial_signature(serial: int) -> str:
    """What shows that this installation has sent a node the serial."""
    return sign(PURPOSE, _signed_text(serial))


def serial_record(node: Node, serial: int, signature: str) -> int:
    """A node has heard of this serial; a signed one ahead of the database tells of a backup.

    Returns:
        The serial if it is refused, for the node to replace it; else 0.
    """
    ahead = serial - own_serial()
    if ahead <= 0:
        return 0
    if ahead > MOST_AHEAD or not is_signed(PURPOSE, _signed_text(serial), signature):
        refused = min(serial, HIGHEST)
        node_record_refused_serial(node, refused)
        return refused
    _note_restored(node, serial)
    return 0


def _note_restored(node: Node, serial: int) -> None:
    with transaction.atomic():
        row = Installation.objects.select_for_update().get(id=1)
        if serial <= row.highest_serial and row.restored_at is not None:
            return
        row.highest_serial = max(serial, row.highest_serial)
        is_new = row.restored_at is None
        row.restored_at = row.restored_at or timezone.now()
        row.save(update_fields=["restored_at", "highest_serial"])
        if is_new:
            data: dict[str, int | str] = {"heard": serial, "own": own_serial(), "node": node.name}
            log.error("database.restored", **data)
            _record("installation.restored", data)


def restore_settle() -> bool:
    """Let passes go on, once every node has shown that it runs nothing unknown any more."""
    row = Installation.objects.get(id=1)
    if row.restored_at is None or row.restore_confirmed_at is None or nodes_unsettled().exists():
        return False
    with transaction.atomic():
        settled = Installation.objects.filter(
            id=1, restored_at__isnull=False, restore_confirmed_at__isnull=False
        ).update(restored_at=None, restore_confirmed_at=None, highest_serial=0)
        if settled:
            _outgrow(row.highest_serial)
            _record("installation.settled", {})
            after_commit(notify=[NOTIFY_ALLOCATION])
    return bool(settled)


def _outgrow(serial: int) -> None:
    """Number events beyond all that nodes have heard, so that they tell of no backup again."""
    ahead = serial - own_serial()
    if not 0 <= ahead <= MOST_AHEAD:
        return
    Event.objects.create(
        id=serial + 1, kind="installation.serial", object_type="installation", object_id="1"
    )
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), [Event]):
            cursor.execute(statement)


def _signed_text(serial: int) -> str:
    return f"{Installation.objects.values_list('key', flat=True).get(id=1)} {serial}"


def _record(kind: str, data: dict[str, int | str]) -> None:
    event_record(
        kind,
        actor=None,
        object_type="installation",
        object_id="1",
        data=data,
        topics=["nodes", "overview"],
    )
