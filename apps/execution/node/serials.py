"""The highest serial of the control plane's database that this node has ever heard.

It only grows while the database is itself. A node that has heard a higher one than it is told now
gives away that the database was restored from a backup.
"""

from __future__ import annotations

import contextlib
import os

from apps.execution.node import clocks, files

# Every growth is written, but not every one waits for the disk: of a power cut's last seconds the
# other nodes know.
SYNC_S = 10.0
ROOM_BYTES = 4096


def hear(home: str, serial: int) -> int:
    """Remember the serial of this request; the highest that was heard before it."""
    path = os.path.join(home, "serial.json")
    with files.locked(os.path.join(home, "serial.lock")):
        kept = files.read_json(path) or {}
        before = int(kept.get("serial", 0))
        if serial > before:
            # On a full disk an older one is told until there is room again.
            with contextlib.suppress(OSError):
                _write(path, serial, kept.get("synced", ""))
    return before


def _write(path: str, serial: int, synced: str) -> None:
    now = "%s %d" % (clocks.boot_id(), clocks.uptime_s() // SYNC_S)
    files.write_json(path, {"serial": serial, "synced": now}, durable=now != synced)
    if not os.path.exists(path + files.ROOM):
        files.reserve(path, size=ROOM_BYTES, times=1)
