"""Crash points: each stands in the code, ends the process that was started for it, and no other."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from apps.core import crash_points
from apps.execution.node import crash_points as node_crash_points

APPS = Path(__file__).resolve().parents[3] / "apps"
USE = re.compile(r'\bcrash_point\("([^"]+)"\)')
NODE = Path("execution", "node")


def named(*, on_nodes: bool) -> list[str]:
    """Every step in the code, each as often as it stands there."""
    return [
        name
        for path in APPS.rglob("*.py")
        if path.is_relative_to(APPS / NODE) == on_nodes and path.name != "crash_points.py"
        for name in USE.findall(path.read_text(encoding="utf-8"))
    ]


def test_every_step_of_the_control_plane_stands_once_in_the_code() -> None:
    want = set(crash_points.POINTS) - set(crash_points.HALF_SENT)

    assert sorted(named(on_nodes=False)) == sorted(want)


def test_every_step_of_the_helper_stands_once_in_the_code() -> None:
    assert sorted(named(on_nodes=True)) == sorted(node_crash_points.POINTS)


def status_of(code: str, **variables: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        cwd=APPS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


POINTS = """
from apps.core.crash_points import crash_point
crash_point("launch.noted")
print("beyond", flush=True)
crash_point("launch.claimed")
print("far beyond", flush=True)
"""


def test_a_process_ends_at_the_step_that_its_environment_names() -> None:
    assert status_of(POINTS, RPM_CRASH_AT="launch.claimed") == (-signal.SIGKILL, "beyond\n")
    assert status_of(POINTS, RPM_CRASH_AT="") == (0, "beyond\nfar beyond\n")


def test_a_step_that_is_none_stops_the_start() -> None:
    status, words = status_of(POINTS, RPM_CRASH_AT="lunch.claimed")

    assert status == 1
    assert "'lunch.claimed' is none of launch.claimed" in words


HALVES = """
import sys
from apps.core.crash_points import request_chunks
for request in (b'{"verb":"sync"}', b'{"verb":"launch"}'):
    for chunk in request_chunks(request):
        sys.stdout.write(chunk.decode())
        sys.stdout.flush()
"""


def test_half_of_the_request_is_sent_and_then_nobody_is_there() -> None:
    whole = '{"verb":"sync"}{"verb":"launch"}'

    assert status_of(HALVES) == (0, whole)
    assert status_of(HALVES, RPM_CRASH_AT="launch.half-sent") == (-signal.SIGKILL, whole[:23])


ON_A_NODE = """
import sys
from apps.execution.node import crash_points
crash_points.arm(HOME)
crash_points.crash_point("node.launch.noted")
crash_points.crash_point("node.launch.fenced")
print("beyond", flush=True)
"""


def test_of_all_processes_of_a_node_one_ends_at_the_step_in_the_file(tmp_path: Path) -> None:
    code = ON_A_NODE.replace("HOME", repr(str(tmp_path)))
    assert status_of(code) == (0, "beyond\n")

    (tmp_path / "crash-at").write_text("node.launch.fenced\n")

    assert status_of(code) == (-signal.SIGKILL, "")
    assert not (tmp_path / "crash-at").exists()
    assert status_of(code) == (0, "beyond\n")


def test_a_step_of_which_nobody_asked_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_points, "_wanted", "")

    crash_points.crash_point("launch.claimed")

    assert list(crash_points.request_chunks(b'{"verb":"launch"}')) == [b'{"verb":"launch"}']
