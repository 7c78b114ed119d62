"""Nodes of the harness follow each call, also two in a moment."""

import secrets
from pathlib import Path

from tests.chaos.nodes import ChaosNode
from tests.chaos.world import what_is_missing
from tests.services.requirements import need


def test_sshd_can_be_stopped_before_it_has_begun(tmp_path: Path) -> None:
    reason = what_is_missing()
    if reason:
        need("namespaces", because=reason)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    node = ChaosNode(
        name="node-1",
        folder=tmp_path / "node-1",
        here=tmp_path / "mine",
        cable=f"t{secrets.token_hex(3)}",
        address="10.127.250.2",
        gateway="10.127.250.1",
        runtime="process",
    )
    try:
        node.make()
        node.boot()
        for _ in range(5):
            node.start_sshd()
            node.stop_sshd()
            assert node.pids("sshd") == []
    finally:
        node.remove()
