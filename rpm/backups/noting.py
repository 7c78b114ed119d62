"""What is done to the whole installation, for its audit log."""

from typing import Any

from django.db import DatabaseError, transaction

from apps.core.recording import event_record
from apps.events.services import audit_record

NOT_NOTED = "The audit log does not say so: the database is of another version of RPM."


def made_note(name: str, *, is_sealed: bool) -> bool:
    """Say that a backup was made; False where the database is of another version.

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


def restored_note(name: str, made_at: str) -> bool:
    """Say that this database is an earlier one, put back; False where it is of another version.

    Its log of events says so already: that is written with the content, or nothing is.
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
