"""Identifiers: of rows, sorted by the time they were made, and of installations."""

import os
import secrets
import time
import uuid


def uuid7(*, at_ms: int | None = None) -> uuid.UUID:
    """A version 7 UUID: 48 bits of milliseconds, then random bits.

    `at_ms` is the moment in milliseconds since the epoch; None: now.

    New rows land at the end of the index, and equal times are settled at random.
    Source: RFC 9562, section 5.7.
    """
    moment = time.time_ns() // 1_000_000 if at_ms is None else at_ms
    value = moment << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return uuid.UUID(int=value)


def first_uuid7(at_ms: int) -> uuid.UUID:
    """The smallest id of that millisecond since the epoch."""
    return uuid.UUID(int=max(at_ms, 0) << 80)


def new_installation_key() -> str:
    """Twelve characters that no other installation has."""
    return secrets.token_hex(6)
