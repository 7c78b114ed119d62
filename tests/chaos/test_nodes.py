"""Nodes of the harness follow each call, also two in a moment."""

import secrets
import subprocess
import sys
from pathlib import Path

from apps.execution.node.channel import HEADER, OPENING
from tests.chaos.nodes import RECORDER, ChaosNode
from tests.chaos.world import what_is_missing
from tests.services.requirements import need


def test_sshd_can_be_stopped_before_it_has_begun(tmp_path: Path) -> None:
    reason = what_is_missing()
    if reason:
        need("namespaces", because=reason)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    node = _node(tmp_path)
    try:
        node.make()
        node.boot()
        for _ in range(5):
            node.start_sshd()
            node.stop_sshd()
            assert node.pids("sshd") == []
    finally:
        node.remove()


def test_launches_of_an_open_channel_reach_the_helper_and_are_kept(tmp_path: Path) -> None:
    node = _node(tmp_path)
    (node.folder / "requests").mkdir(parents=True)
    helper = node.folder / "helper"
    helper.mkdir()
    first = OPENING + _frame(1, b'{"verb":"sync"}') + _frame(2, b'{"verb":"launch","rank":0}')
    (helper / "__main__.py").write_text(
        f"import os; os.write(1, os.read(0, {len(first)})); os.read(0, 1)"
    )
    recorder = RECORDER.format(folder=node.folder, python=sys.executable)

    with subprocess.Popen(
        ["bash", "-c", recorder, "python3", "-ES", str(helper)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(first)
        process.stdin.flush()
        assert process.stdout.read(len(first)) == first
        # Cut in the middle of another launch.
        process.stdin.write(_frame(3, b'{"verb":"launch","rank":1}')[:-4])
        process.stdin.close()

    assert node.launches() == [b'{"verb":"launch","rank":0}']


def _frame(number: int, content: bytes) -> bytes:
    return HEADER.pack(number, 0, len(content)) + content


def _node(folder: Path) -> ChaosNode:
    return ChaosNode(
        name="node-1",
        folder=folder / "node-1",
        here=folder / "mine",
        cable=f"t{secrets.token_hex(3)}",
        address="10.127.250.2",
        gateway="10.127.250.1",
        runtime="process",
    )
