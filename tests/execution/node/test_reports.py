"""What a node says of itself and of the past."""

import json
import subprocess
from pathlib import Path

import pytest

from apps.execution.node import devices, state_files, supervisor
from apps.execution.node.specs import MemberIdentity
from apps.execution.protocol.outcomes import NodeRefusal
from apps.execution.protocol.requests import LogPosition
from tests.execution.nodes import installed_local, member_of
from tests.services.ports import wait_until

NVIDIA_YAML = """\
---
cdiVersion: 0.5.0
containerEdits:
  env:
    - NVIDIA_VISIBLE_DEVICES=void
  hooks:
    - hookName: createContainer
devices:
    - containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
      name: "0"
    - containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
      name: GPU-5f1e
- name: all
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
kind: nvidia.com/gpu
"""


def test_names_of_devices_are_read_from_cdi_files_of_both_forms(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text(NVIDIA_YAML)
    other = {"kind": "example.org/gpu", "devices": [{"name": "A"}, {"name": "B"}]}
    (tmp_path / "other.json").write_text(json.dumps(other))
    (tmp_path / "notes.txt").write_text("kind: x/y")

    names = devices.cdi_names((str(tmp_path), str(tmp_path / "missing")))

    assert names == {
        "nvidia.com/gpu=0",
        "nvidia.com/gpu=GPU-5f1e",
        "nvidia.com/gpu=all",
        "example.org/gpu=A",
        "example.org/gpu=B",
    }


def test_a_broken_cdi_file_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_text('["not", "an object"]')
    (tmp_path / "c.json").write_text('{"kind": "example.org/gpu", "devices": ["B", {"name": "A"}]}')
    (tmp_path / "d.json").write_text('{"kind": "example.org/gpu", "devices": null}')

    assert devices.cdi_names((str(tmp_path),)) == {"example.org/gpu=A"}


def test_a_log_beyond_its_bound_is_cut_and_its_offsets_go_on(tmp_path: Path) -> None:
    node = installed_local(str(tmp_path / "home"))
    request = node.launch_request("sh", "-c", "echo 0123456789; sleep 30")
    node.client.launch(request)
    member = member_of(request)
    node.wait_for_log(member, b"0123456789\n")
    identity = MemberIdentity(member.task_id, member.generation, member.rank)
    attempt = state_files.MemberFolder(str(tmp_path / "home"), identity)

    supervisor.shorten_log(attempt, limit=10)
    with Path(attempt.path("log")).open("ab") as log:
        log.write(b"more\n")
    (part,) = node.sync(logs=(LogPosition(member.task_id, 1, 0, offset=3),)).logs

    assert (part.offset, part.content) == (11, b"more\n")
    node.stop(member, grace_s=0)
    node.wait_for_exit(member)


def test_space_behind_the_end_of_a_log_is_freed_and_its_offsets_stay(tmp_path: Path) -> None:
    attempt = state_files.MemberFolder(str(tmp_path / "home"), MemberIdentity("t1", 1, 0))
    state_files.add(attempt)
    log = Path(attempt.path("log"))
    log.touch()
    limit = 1_000_000

    for length in ("3M", "5M"):
        take = ["fallocate", "--keep-size", f"--length={length}", str(log)]
        subprocess.run(take, check=True)
        before = log.stat()
        # File systems take some space behind the end by themselves, as much as the file is long.
        is_freed = length == "5M"
        assert supervisor.log_takes_too_much(attempt, limit=limit) == is_freed
        supervisor.shorten_log(attempt, limit=limit)
        assert before.st_size == 0
        assert (log.stat().st_blocks < before.st_blocks) == is_freed

    assert log.stat().st_blocks == 0
    assert attempt.read("dropped.json") == {"bytes": 0}


def test_what_ran_before_the_node_booted_is_not_reported_and_not_started_again(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    node = installed_local(str(home))
    request = node.launch_request("sleep", "30")
    node.client.launch(request)
    member = member_of(request)
    assert len(node.sync().members) == 1
    node.stop(member, grace_s=0)
    node.wait_for_exit(member)
    folder = home / "tasks" / member.task_id / "1-0"
    # As a power cut leaves it: launched on another boot, no result.
    kept = json.loads((folder / "spec.json").read_text())
    (folder / "spec.json").write_text(json.dumps(kept | {"boot_id": "before"}))
    (folder / "exit.json").unlink()

    report = node.sync()
    again = node.client.launch(request)

    assert report.members == ()
    wait_until(lambda: not folder.exists(), what="the folder is removed")
    assert isinstance(again, NodeRefusal)
    assert again.code == "ended"


def test_a_machine_without_a_driver_says_so_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_driver", lambda: (None, "no NVIDIA driver"))

    found = devices.inventory()

    assert (found["state"], found["driver"], found["devices"]) == ("no NVIDIA driver", "", [])
    assert devices.device_processes({}) == []
