"""What a node says of the programs around it."""

import os
from pathlib import Path

import pytest

from tests.execution.nodes import installed_local

SSHD = "port 22\nmaxsessions 200\nmaxstartups 100:30:200\nclientaliveinterval 0\nusedns no\n"


def test_a_probe_tells_of_the_toolkit_and_of_sshds_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, words in (("sshd", SSHD), ("nvidia-ctk", "NVIDIA Container Toolkit CLI 1.17.4\n")):
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\nprintf '%s' '{words}'\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    inventory = installed_local(str(tmp_path / "home")).probe().answer

    assert inventory.toolkit == "NVIDIA Container Toolkit CLI 1.17.4"
    assert inventory.sshd == {
        "maxsessions": "200",
        "maxstartups": "100:30:200",
        "clientaliveinterval": "0",
    }


def test_counters_of_the_machine_only_grow(tmp_path: Path) -> None:
    node = installed_local(str(tmp_path / "home"))
    first, then = (node.probe().answer for _ in range(2))

    assert first.cpu_ms is not None
    assert first.cpu_busy_ms is not None
    assert then.cpu_ms is not None
    assert then.cpu_busy_ms is not None
    assert 0 < first.cpu_busy_ms <= then.cpu_busy_ms <= then.cpu_ms
    assert first.cpu_ms <= then.cpu_ms
    # About as long as all CPUs together have been there.
    assert first.cpu_ms > 1000
    assert all(isinstance(one.physical, bool) for one in first.network)


def test_a_node_where_nobody_may_ask_sshd_says_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "sshd"
    tool.write_text("#!/bin/sh\necho sshd: no hostkeys available >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    assert installed_local(str(tmp_path / "home")).probe().answer.sshd == {}
