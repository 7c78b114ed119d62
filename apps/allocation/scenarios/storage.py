"""Snapshots as they are kept with a pass: written often and fast, read rarely."""

import zlib

import msgspec

from apps.allocation.engine.model.snapshot import Snapshot
from apps.allocation.scenarios.writer import snapshot_to_json

# Compressed content begins otherwise: older records hold the scenario file itself.
_PLAIN = b"plain:"
# Level 1: half the time of the default, for a fifth more bytes.
_LEVEL = 1


def snapshot_pack(snapshot: Snapshot) -> bytes:
    """The fields of the snapshot as they are, compressed."""
    return _PLAIN + zlib.compress(msgspec.json.encode(snapshot), _LEVEL)


def snapshot_unpack(content: bytes) -> str:
    """What was kept, as a scenario file."""
    if not content.startswith(_PLAIN):
        return zlib.decompress(content).decode()
    plain = zlib.decompress(content.removeprefix(_PLAIN))
    return snapshot_to_json(msgspec.json.decode(plain, type=Snapshot))
