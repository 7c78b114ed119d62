"""Up to which event the log can be read without missing one that commits later.

Numbers of events are given when they are inserted, and become visible when their transaction
commits: event 7 may appear after event 8 was read. A transaction that inserts events holds a lock
on the table from before it gets a number until after the commit. So, where no transaction that held
it when event 8 was the last still holds it, every event up to 8 is there, or will never be.
"""

from dataclasses import dataclass

from django.db import connection
from django.db.models import Max

from apps.events.models import Event

# Of other sessions: the caller only reads events.
_WRITERS = """
SELECT DISTINCT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted
    AND relation = %s::regclass AND pid <> pg_backend_pid()
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@dataclass(frozen=True, slots=True)
class EventHorizon:
    """The last event at some time, and the transactions that may have inserted earlier ones."""

    event_id: int
    writers: frozenset[str] = frozenset()


def horizon_now() -> EventHorizon:
    """The horizon of this moment; the number is read before the locks.

    SQLite lets one transaction write at a time.
    """
    last = last_event_id()
    return EventHorizon(last, event_writers())


def last_event_id() -> int:
    """The number of the newest event; 0 where there is none."""
    return Event.objects.aggregate(last=Max("pk"))["last"] or 0


def event_writers() -> frozenset[str]:
    """The transactions that may be inserting events."""
    if connection.vendor != "postgresql":
        return frozenset()
    with connection.cursor() as cursor:
        cursor.execute(_WRITERS, [Event._meta.db_table])
        return frozenset(str(row[0]) for row in cursor.fetchall())
