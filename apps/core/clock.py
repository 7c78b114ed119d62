"""One time for all processes: the database's, which no wall clock of a worker or node changes."""

import time
from datetime import datetime, timedelta

from django.db import connection
from django.utils import timezone

# Between two reads of the database's clock this machine's monotonic one counts.
ASK_EVERY_S = 60.0
DOUBT_S = 3600.0
# What was stored at a later time than this from now was stored by a clock that was wrong.
MOST_AHEAD = timedelta(hours=1)

_known: list[tuple[datetime, float]] = []
_began = (time.time(), time.clock_gettime(time.CLOCK_BOOTTIME))


def now() -> datetime:
    """The database's time; with SQLite, which has none of its own, this machine's."""
    if connection.vendor != "postgresql":
        return timezone.now()
    steady_s = time.monotonic()
    if not _known or steady_s - _known[0][1] > ASK_EVERY_S:
        with connection.cursor() as cursor:
            cursor.execute("SELECT clock_timestamp()")
            _known[:] = [(cursor.fetchone()[0], steady_s)]
    at, then_s = _known[0]
    return at + timedelta(seconds=steady_s - then_s)


def is_in_doubt() -> bool:
    """Whether this machine's wall clock jumped since this process began, or is not the database's.

    No old data is removed then, because one of the two clocks is wrong.
    """
    wall_s, boot_s = _began
    jump_s = (time.time() - wall_s) - (time.clock_gettime(time.CLOCK_BOOTTIME) - boot_s)
    difference_s = (timezone.now() - now()).total_seconds()
    return max(abs(jump_s), abs(difference_s)) > DOUBT_S
