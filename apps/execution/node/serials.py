"""The highest serial of the control plane's database that this node has ever heard.

It only grows while the database is itself. A node that has heard a higher one than it receives now
shows that the database was restored from a backup. The control plane believes only what bears its
signature, so the node keeps both, and an unsigned serial (of an earlier release) is none.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, NamedTuple

from apps.execution.node import clocks, files, request_fields

# Every growth is written, but not every one waits for the disk: of a power cut's last seconds the
# other nodes know.
SYNC_S = 10.0
RESERVED_BYTES = 4096
LOCK_LIMIT_S = 1.0


class Serial(NamedTuple):
    """A serial with the control plane's signature; 0 and an empty one mean none."""

    number: int
    signature: str


NONE = Serial(0, "")


def record(home: str, received: Serial, *, refused: int = 0) -> Serial:
    """Remember the serial of this request; the highest that was heard before it.

    Args:
        refused: what the control plane says it never signed; it is replaced.
    """
    path = os.path.join(home, "serial.json")
    # Without it the next exchange brings a serial again; this one reports what is there.
    lock = files.take_lock(os.path.join(home, "serial.lock"), wait=True, limit_s=LOCK_LIMIT_S)
    stored = files.read_json(path) or {}
    before = _serial_in(stored)
    if lock is None:
        return before
    is_wrong = refused > 0 and before.number == refused
    try:
        if received.signature and (received.number > before.number or is_wrong):
            # On a full disk the node reports an older one until there is space again.
            with contextlib.suppress(OSError):
                _write(path, received, stored.get("synced", ""))
    finally:
        os.close(lock)
    return before


def _serial_in(stored: dict[str, Any]) -> Serial:
    number, signature = stored.get("serial"), stored.get("signature")
    is_number = type(number) is int and 0 <= number < 2**63
    # What is no signature would make the whole answer one that the control plane cannot read.
    if is_number and isinstance(signature, str) and request_fields.SIGNATURE.fullmatch(signature):
        return Serial(int(number or 0), signature) if signature else NONE
    return NONE


def _write(path: str, serial: Serial, synced: object) -> None:
    now = "%s %d" % (clocks.boot_id(), clocks.uptime_s() // SYNC_S)
    content = {"serial": serial.number, "signature": serial.signature, "synced": now}
    files.write_json(path, content, durable=now != synced)
    if not os.path.exists(path + files.RESERVED):
        files.reserve(path, size=RESERVED_BYTES, times=1)
