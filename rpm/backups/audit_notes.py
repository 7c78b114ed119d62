"""Audit entries of backups and restores."""

from typing import Any

from django.db import DatabaseError, transaction

from apps.core.recorders import event_record
from apps.events.services import audit_record

NOT_RECORDED = "The audit log does not say so: the database is of another version of RPM."


def backup_note(name: str, *, is_sealed: bool) -> bool:
    """Record that a backup was made; False if the database is of another version.

    Args:
        name: of the file, without its folders.
    """
    data = {"name": name, "after": {"is_sealed": is_sealed}}
    try:
        with transaction.atomic():
            event_record(
                "installation.backed_up",
                actor=None,
                object_type="installation",
                object_id=1,
                data=data,
            )
    except DatabaseError:
        return False
    return True


def restore_note(name: str, made_at: str) -> bool:
    """Record that this database was restored; False if it is of another version.

    The restore wrote the event already, in the transaction of the content.
    """
    data: dict[str, Any] = {"name": name, "after": {"made_at": made_at}}
    try:
        with transaction.atomic():
            audit_record(
                "installation.restored",
                actor=None,
                object_type="installation",
                object_id=1,
                data=data,
            )
    except DatabaseError:
        return False
    return True
